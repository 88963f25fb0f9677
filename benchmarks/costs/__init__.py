"""Cost models, judged by errors and by the schedules that follow from them."""
