//! Addresses of object stores, in a build that has none: every place that takes one says what to build.

#![cfg(not(feature = "s3"))]

use testing::checkpoint_copy::{attnscope, text};

#[test]
fn an_address_is_refused_wherever_one_may_stand() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (prompts, out) = (at("prompts.jsonl"), at("out"));
    std::fs::write(&prompts, "{\"tokens\": [3, 4, 5]}\n").expect("writes");
    let step = testing::root().join("fixtures/history/step-150.safetensors");
    let step = step.display().to_string();
    for arguments in [
        [
            "batch",
            "s3://runs/a",
            "--inputs",
            &prompts,
            "--output",
            &out,
        ],
        ["batch", &step, "--inputs", "s3://runs/p", "--output", &out],
        [
            "batch",
            &step,
            "--inputs",
            &prompts,
            "--output",
            "s3://runs/o",
        ],
        [
            "report",
            "s3://runs/a",
            "--tokens",
            "1,2",
            "--format",
            "json",
        ],
        [
            "report",
            &step,
            "--tokens",
            "3,4",
            "--output",
            "s3://runs/r",
        ],
        [
            "check",
            "s3://runs/a",
            "--tokens",
            "1,2",
            "--format",
            "json",
        ],
        [
            "merge",
            "s3://runs/out",
            "--output",
            &out,
            "--format",
            "csv",
        ],
    ] {
        let refused = attnscope(&arguments);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains("this build has no s3; build with --features s3"),
            "{arguments:?}: {said}"
        );
    }
}
