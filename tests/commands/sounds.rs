//! Files of sound as prompts: heard by models that hear, and refused with a reason where nobody can hear them.

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::refusal::{assert_says, refused_report};

/// A WAV file of one channel, `n` samples of 16 bits.
fn wav(rate: u32, n: u32) -> Vec<u8> {
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + 2 * n).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend([1, 0, 1, 0]);
    bytes.extend(rate.to_le_bytes());
    bytes.extend((2 * rate).to_le_bytes());
    bytes.extend([2, 0, 16, 0]);
    bytes.extend(b"data");
    bytes.extend((2 * n).to_le_bytes());
    bytes.extend((0..n).flat_map(|idx| ((idx * 37 % 5_000) as i16).to_le_bytes()));
    bytes
}

#[test]
fn a_sound_that_cannot_be_heard_is_refused_with_a_reason() {
    let copy = Copy::of("whisper");
    let whole = wav(16_000, 900);
    for (name, bytes, parts) in [
        (
            "a.wav",
            b"no sound at all, only words".to_vec(),
            ["a.wav", "expected a WAV file"],
        ),
        ("b.wav", whole[..1_000].to_vec(), ["b.wav", "cut"]),
        ("c.wav", Vec::new(), ["c.wav", "empty"]),
        ("d.wav", wav(48_000, 900), ["48000", "ffmpeg"]),
        ("e.wav", wav(16_000, 0), ["e.wav", "without samples"]),
    ] {
        copy.write(name, bytes);
        let path = copy.file(name);
        let said = refused_report(&copy, &["--text", path.to_str().expect("a path")]);
        assert_says(&said, &parts);
    }
    assert_says(
        &refused_report(&copy, &["--text", "nowhere.wav"]),
        &["nowhere.wav", "cannot be opened"],
    );
    assert_says(
        &refused_report(&copy, &["--text", "some words"]),
        &["hears sound", "some words"],
    );
    assert_says(
        &refused_report(&copy, &["--tokens", "1,2"]),
        &["hears sound", "token ids"],
    );
    let reads = Copy::of("gpt2");
    reads.write("whole.wav", whole);
    let path = reads.file("whole.wav");
    let said = refused_report(&reads, &["--text", path.to_str().expect("a path")]);
    assert_says(&said, &["whole.wav", "reads text"]);
}

#[test]
fn a_sound_is_a_prompt_of_every_command() {
    let copy = Copy::of("whisper");
    copy.write("sound.wav", wav(16_000, 3_000));
    let sound = copy.file("sound.wav");
    let sound = sound.to_str().expect("a path");
    let run = |arguments: &[&str]| {
        let ran = attnscope(arguments);
        assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
        text(&ran.stdout)
    };
    // The files beside its configuration count too: how it hears, how it begins to write.
    let model = testing::root().join("fixtures/oracle/whisper/model");
    let model = model.to_str().expect("a path");
    // Without a prompt, a built-in sound is heard.
    for arguments in [vec!["report", model, sound], vec!["report", model]] {
        let report: Value = serde_json::from_str(&run(&arguments)).expect("JSON");
        assert_eq!(
            report["prompts"][0]["tokens"].as_array().map(Vec::len),
            Some(20)
        );
    }
    let rollout = run(&["effect", model, sound, "--by", "rollout", "--generate", "2"]);
    assert!(
        rollout.contains(" 0.18s ") && rollout.contains(" 0.20s pad "),
        "{rollout}"
    );
    let heads = run(&["heads", model, sound]);
    assert_eq!(heads.matches("alignment").count(), 3, "{heads}");
}
