# Completions of attnscope for fish. The program prints them, so that they fit the version that runs.
attnscope completions fish 2>/dev/null | source
