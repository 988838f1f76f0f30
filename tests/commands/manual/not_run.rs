//! Commands of the manual that no test runs as they stand, each with the reason. Every other command is run.

/// A page, or `*`; how its commands begin; why they are not run.
pub const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "*",
        "cargo ",
        "builds the program, or runs its tests and benchmarks",
    ),
    (
        "*",
        "pip install ",
        "installs from a registry; .ci/wheel installs the wheel",
    ),
    (
        "*",
        "python benches/",
        "a measurement of minutes, whose figures are this machine's",
    ),
    ("*", "attnscope openai-community/", "downloads from the hub"),
    (
        "docs/compare.md",
        "attnscope diff CHECKPOINT vllm.pt",
        "reads what vLLM's workers wrote",
    ),
    ("docs/CONTRIBUTING.md", ".ci/", "runs these tests"),
    (
        "docs/CONTRIBUTING.md",
        "ATTNSCOPE_SLOW=1 cargo ",
        "runs these tests",
    ),
    (
        "docs/checkpoints.md",
        "attnscope google/",
        "downloads from the hub",
    ),
    (
        "docs/checkpoints.md",
        "attnscope report google/",
        "downloads from the hub",
    ),
    (
        "docs/checkpoints.md",
        "attnscope report whisper-tiny/",
        "needs a speech model of the hub; tests/numbers/speech.rs has a small one",
    ),
    (
        "docs/checkpoints.md",
        "attnscope ckpt.pt ",
        "a file of torch.save; tests/formats/homegrown_files.rs opens such files",
    ),
    (
        "docs/checkpoints.md",
        "attnscope weights.safetensors --set family=falcon ",
        "weights without a configuration; tests/commands/weights_alone.rs opens such files",
    ),
    (
        "docs/cluster.md",
        "attnscope batch /shared/",
        "needs the nodes of a cluster; tests/commands/batch_command.rs runs shards",
    ),
    ("docs/cluster.md", "sbatch ", "needs Slurm"),
    (
        "docs/logprobs.md",
        "attnscope serve-check ",
        "needs a server; tests/commands/serve_check.rs has one",
    ),
    (
        "docs/cluster.md",
        "python -m attnscope.ray ",
        "needs a Ray cluster; tests/python/test_ray.py starts one where ray is installed",
    ),
    (
        "docs/install.md",
        "target/release/attnscope ",
        "needs a build with CUDA, and a GPU",
    ),
    (
        "docs/install.md",
        "attnscope report fixtures/healthy \"the king\" --device cuda",
        "shows the error of a build without CUDA; tests/commands/device_choice.rs",
    ),
    (
        "docs/figures.md",
        "attnscope plot ",
        "draws a picture of the manual: the test `gallery` runs it",
    ),
    (
        "docs/figures.md",
        "rm docs/pictures/",
        "removes files of the repository",
    ),
    (
        "docs/what_if.md",
        "attnscope report MODEL --chat ",
        "needs a model with a chat template; tests/formats/chat_templates.rs has some",
    ),
    (
        "docs/describe.md",
        "attnscope guess model.safetensors ",
        "the console block of the page is the same on a fixture",
    ),
    (
        "docs/describe.md",
        "attnscope model.safetensors ",
        "opens what the line before made",
    ),
    (
        "docs/hardening.md",
        "attnscope report ckpt.pt ",
        "a file that is written to at the same moment; tests/formats/changing_files.rs",
    ),
    (
        "docs/history.md",
        "attnscope watch run.jsonl --exec ",
        "follows a training that goes on; tests/commands/watch_command.rs",
    ),
    (
        "docs/history.md",
        "python train.py",
        "stands for a training",
    ),
    (
        "docs/install.md",
        "python3 -m venv env",
        "makes an environment to install into; .ci/wheel does",
    ),
    (
        "docs/install.md",
        "env/bin/",
        "runs what the lines before installed; .ci/wheel does",
    ),
    (
        "docs/install.md",
        "man ",
        "shows an installed page in a pager; tests/commands/man_command.rs",
    ),
    (
        "docs/install.md",
        "attnscope man check | man ",
        "shows a page in a pager; tests/commands/man_command.rs",
    ),
    (
        "*",
        "attnscope effect train.py:load ",
        "needs a model of PyTorch; tests/python/test_live_effect.py has one, tests/commands/live_effect.rs a process without it",
    ),
];
