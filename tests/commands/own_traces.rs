//! A trace that the program writes is accused of nothing by its own checks.

use testing::checkpoint_copy::{attnscope, text};

/// Models part of whose rows goes to no key (learned sinks, empty places of windows), and one whose windows end with the query.
const CASES: [&str; 4] = [
    "gpt_oss",
    "sam_vision_model",
    "gemma3n_audio",
    "nemotron_asr_streaming_encoder_b",
];

#[test]
fn a_trace_of_our_own_says_what_its_rows_leave_out() {
    let directory = tempfile::tempdir().expect("a directory");
    for case in CASES {
        let model = testing::root().join("fixtures/oracle").join(case);
        let model = model.join("model").display().to_string();
        let trace = directory.path().join(case).with_extension("safetensors");
        let trace = trace.display().to_string();
        let written = attnscope(&["trace", &model, "--output", &trace]);
        assert!(
            written.status.success(),
            "{case}: {}",
            text(&written.stderr)
        );
        let checked = attnscope(&["check", &trace, "--fail-on", "warning"]);
        assert!(
            checked.status.success(),
            "{case}: {}",
            text(&checked.stdout)
        );
    }
}
