"""The pages: what they name exists, what they show runs, and the site builds."""
