//! Addresses of object stores: every command that takes a target refuses them, and says what to do instead.

use testing::checkpoint_copy::{attnscope, text};

#[test]
fn an_address_of_an_object_store_is_refused_with_advice() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (prompts, out) = (at("prompts.jsonl"), at("out"));
    std::fs::write(&prompts, "{\"tokens\": [3, 4, 5]}\n").expect("writes");
    let step = testing::root().join("fixtures/history/step-150.safetensors");
    let step = step.display().to_string();
    let address = "s3://bucket/key";
    for arguments in [
        vec![address],
        vec!["report", address, "--tokens", "1,2"],
        vec!["check", address, "--tokens", "1,2"],
        vec!["heads", address, "--tokens", "1,2"],
        vec!["tensors", address],
        vec!["history", address],
        vec!["merge", address, "--output", &out],
        vec!["batch", address, "--inputs", &prompts, "--output", &out],
        vec!["batch", &step, "--inputs", &prompts, "--output", address],
    ] {
        let refused = attnscope(&arguments);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains(
                "s3://bucket/key: addresses of object stores are not read; mount the bucket (mountpoint-s3, rclone) and give the path"
            ),
            "{arguments:?}: {said}"
        );
    }
}
