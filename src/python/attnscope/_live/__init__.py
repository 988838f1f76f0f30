"""A live subject: a Python process holds a model, and attnscope shows what its attention does.

Two ways lead here. `attnscope train.py:load` starts Python, which loads what was named (`spawned`). `attnscope.open(model)` runs in
the process that has the model already, and starts the screen (`opened`). Both answer the requests of one channel (`channel`,
`serving`), whose reference is docs/live.md. All that knows a framework is in an adapter; `pytorch` is the one for PyTorch.
"""
