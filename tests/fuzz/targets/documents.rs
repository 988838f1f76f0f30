//! Sets of prompts, thresholds, and earlier reports to compare with.

use std::path::Path;

use attnscope_checks::{DEFAULT_THRESHOLDS, Thresholds};
use attnscope_prompt::{
    Filter, Firsts, Limits, Mel, Picture, PicturePreprocessing, PictureSource, PositionRule,
    PromptForm, Request, Size, SoundRule, Starts, read_inputs,
};
use attnscope_report::read_baseline;
use serde_json::json;

use super::Target;
use crate::seeds::{Kind, Seed, fixture};

/// Prompts, prepared for a small model with an encoder and for one without.
fn prepared(path: &Path) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let requests = read_inputs(path, &Request::text("")).map_err(said)?;
    let prompt_form = PromptForm::Ids("not asked for".to_owned());
    for (_, request) in &requests {
        for (start_token, positions) in [
            (None, PositionRule::Index),
            (None, PositionRule::NotPad { pad: 1 }),
            (Some(0), PositionRule::RealTokens { first: 2 }),
        ] {
            let limits = Limits {
                is_n_ctx_hard: true,
                d_vocab: 100,
                d_vocab_target: None,
                n_ctx: Some(64),
                n_ctx_target: Some(48),
                positions,
                start_token,
                preprocessing: None,
                starts: Starts::NONE,
                sound: None,
                rows_of_target: None,
            };
            if let Ok(prompt) = attnscope_prompt::prepare(request, &prompt_form, limits) {
                prompt.longest();
            }
        }
    }
    Ok(())
}

pub const PICTURES: Target = Target {
    name: "pictures",
    n_quick: 3_000,
    seeds: || {
        let of = |name: &str| {
            let bytes = fixture(&format!("formats/pictures/{name}"));
            Seed::ending(Kind::Bytes, "png", bytes)
        };
        let names = [
            "plain.jpg",
            "progressive.jpg",
            "turned.jpg",
            "palette.png",
            "clear.png",
        ];
        names.into_iter().map(of).collect()
    },
    tokens: &[
        "IHDR", "PLTE", "IDAT", "tRNS", "IEND", "Exif\0\0", "II*\0", "MM\0*", "JFIF",
    ],
    read: |path| {
        let preprocessing = PicturePreprocessing {
            n_channels: 3,
            resize: Some((Size::Shortest(20), Filter::Bicubic)),
            is_framed: false,
            resizes_values: false,
            crop: Some([24, 16]),
            cuts_evenly: false,
            fill: None,
            has_blue_first: false,
            rescale: 1.0 / 255.0,
            mean: [0.5; 3],
            std: [0.5; 3],
            standardises: false,
            crops_margin: false,
            shrinks_by: None,
            patch: [8, 8],
            margin: 0,
            overlap: 0,
            n_moments: 1,
            takes: None,
            firsts: Firsts::default(),
        };
        let source = PictureSource::File(path.to_path_buf());
        let picture = Picture::read(&source, &preprocessing).map_err(|e| e.to_string())?;
        assert_eq!(picture.n_tokens(), 6);
        Ok(())
    },
};

pub const PROMPTS: Target = Target {
    name: "prompts",
    n_quick: 10_000,
    seeds: || {
        let lines = [
            json!({ "id": "a", "text": "some words" }),
            json!({ "tokens": [1, 2, 3], "attention_mask": [0, 1, 1] }),
            json!({ "tokens": [4, 5], "target_tokens": [0, 7], "id": "b" }),
            json!({ "text": "source", "target": "written" }),
        ];
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        vec![
            Seed::ending(Kind::Lines, "jsonl", lines.join("\n")),
            Seed::ending(Kind::Lines, "jsonl", lines[1].clone()),
            Seed::ending(Kind::Lines, "jsonl", lines[2].clone()),
        ]
    },
    tokens: &[
        "id",
        "text",
        "tokens",
        "target",
        "target_tokens",
        "image",
        "attention_mask",
        "a",
        "0",
        "\u{2028}",
        "{}",
        "[]",
        "null",
    ],
    read: prepared,
};

pub const BASELINES: Target = Target {
    name: "baselines",
    n_quick: 8_000,
    seeds: || {
        let layer = json!({
            "stack": null, "layer": 0, "stats": { "resid_norm": 1.5, "attn_share": "NaN" },
            "heads": [{ "head": 0, "stats": { "entropy_mean": 0.5, "sink_mass": "Infinity" } }, { "head": 1, "stats": {} }],
        });
        let of = |stack: &str| {
            let mut layer = layer.clone();
            layer["stack"] = json!(stack);
            layer
        };
        let whole = json!({ "version": 1, "model": { "name": "m" }, "prompts": [{ "id": "prompt", "loss": 2.5, "layers": [layer] }] });
        let two = json!({ "version": 1, "prompts": [{ "id": "a", "loss": null, "layers": [of("encoder"), of("cross")] }, { "id": "b", "layers": [] }] });
        vec![
            Seed::ending(Kind::Json, "json", whole.to_string()),
            Seed::ending(Kind::Json, "json", two.to_string()),
        ]
    },
    tokens: &[
        "version",
        "prompts",
        "layers",
        "layer",
        "stack",
        "encoder",
        "decoder",
        "cross",
        "heads",
        "head",
        "stats",
        "NaN",
        "-Infinity",
        "loss",
        "id",
    ],
    read: |path| read_baseline(path).map(drop).map_err(|e| e.to_string()),
};

pub const THRESHOLDS: Target = Target {
    name: "thresholds",
    n_quick: 8_000,
    seeds: || {
        vec![
            Seed::ending(
                Kind::Lines,
                "toml",
                "[entropy-collapse]\nrelative_entropy = 0.05\n",
            ),
            Seed::ending(Kind::Lines, "toml", DEFAULT_THRESHOLDS),
        ]
    },
    tokens: &[
        "[",
        "]",
        "[[",
        "=",
        "'''",
        "\"\"\"",
        "1e309",
        "nan",
        "inf",
        "-0",
        "0x",
        "1979-05-27T07:32:00Z",
        "{",
        "}",
        ".",
        "#",
        "relative_entropy",
        "[entropy-collapse]",
    ],
    read: |path| Thresholds::open(path).map(drop).map_err(|e| e.to_string()),
};

/// A sound, heard by a model that takes little of it.
fn heard(path: &Path) -> Result<(), String> {
    let rule = SoundRule {
        rate: 16_000,
        n_window: 400,
        hop: 160,
        n_mels: 8,
        n_frames: 4,
        frames_per_position: 2,
        mel: Mel::whisper(400),
        waves: None,
        steps: None,
        n_least: 0,
        patches: None,
        is_rows: false,
    };
    let limits = Limits {
        d_vocab: 10,
        d_vocab_target: None,
        n_ctx: Some(8),
        n_ctx_target: None,
        is_n_ctx_hard: true,
        positions: PositionRule::Index,
        start_token: Some(0),
        starts: Starts::NONE,
        preprocessing: None,
        sound: Some(rule),
        rows_of_target: None,
    };
    let request = Request::text(path.to_string_lossy());
    let prompt_form = PromptForm::Ids("not asked for".to_owned());
    let prompt =
        attnscope_prompt::prepare(&request, &prompt_form, limits).map_err(|e| e.to_string())?;
    let sound = prompt.given().sound.as_deref().expect("a sound");
    assert!(sound.values.iter().all(|value| value.is_finite()));
    Ok(())
}

/// A WAV file of 16 bits or of floats, with a chunk that is no sound before its samples.
fn wav(format: u16, samples: &[u8]) -> Vec<u8> {
    let n_wide: u16 = if format == 3 { 4 } else { 2 };
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((samples.len() as u32 + 48).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(format.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(16_000u32.to_le_bytes());
    bytes.extend((16_000 * u32::from(n_wide)).to_le_bytes());
    bytes.extend(n_wide.to_le_bytes());
    bytes.extend((8 * n_wide).to_le_bytes());
    bytes.extend(b"LIST");
    bytes.extend(4u32.to_le_bytes());
    bytes.extend(b"INFO");
    bytes.extend(b"data");
    bytes.extend((samples.len() as u32).to_le_bytes());
    bytes.extend(samples);
    bytes
}

pub const SOUNDS: Target = Target {
    name: "sounds",
    n_quick: 5_000,
    seeds: || {
        let tone = (0..700).map(|idx| (f64::from(idx) / 9.0).sin());
        let whole = tone
            .clone()
            .flat_map(|v| ((v * 9_000.0) as i16).to_le_bytes());
        let floats = tone.flat_map(|v| (v as f32).to_le_bytes());
        vec![
            Seed::ending(Kind::Bytes, "wav", wav(1, &whole.collect::<Vec<u8>>())),
            Seed::ending(Kind::Bytes, "wav", wav(3, &floats.collect::<Vec<u8>>())),
        ]
    },
    tokens: &["RIFF", "WAVE", "fmt ", "data", "LIST", "fact"],
    read: heard,
};
