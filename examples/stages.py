"""The stages one by one: each is a value that can be looked at, saved and replaced."""

import tvm_xengine as xe

training = xe.training_step("lenet", batch_size=4, optimizer=xe.SGD(0.01, momentum=0.9))
print(training.report())
lowered = xe.lower(training)
problem = xe.make_problem(lowered, costs="predicted").with_budget_ratio(1.0)
plan = xe.plan(problem, time_limit_s=5)
plan.save("plan.json")
step = xe.build(lowered, xe.StepPlan.load("plan.json", lowered))
print(step.report())
print(xe.estimate("lenet", batch_size=4).report())
