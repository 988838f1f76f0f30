//! Losses that loggers wrote: whole files, whose checksums most mutants break, and single records behind sound ones.

use std::path::Path;

use attnscope_history::LossReader;

use super::Target;
use crate::seeds::{Kind, Seed};

fn fixture(path: &str) -> Vec<u8> {
    let path = testing::root().join("fixtures/losses").join(path);
    std::fs::read(path).expect("a fixture")
}

const EVENTS: &str = "events.out.tfevents.0.host";
const WANDB: &str = "run-first.wandb";

pub const FILES: Target = Target {
    name: "losses-files",
    n_quick: 300,
    seeds: || {
        let events = fixture("tensorboard/runs/first/events.out.tfevents.0.host");
        let wandb = fixture("wandb/wandb/offline-run-20231114_221320-first/run-first.wandb");
        let state = br#"{"global_step": 20, "log_history": [{"loss": 3.5, "step": 10}, {"eval_loss": NaN, "step": 20}]}"#;
        vec![
            Seed::named(Kind::Bytes, EVENTS, events),
            Seed::named(Kind::Bytes, WANDB, wandb),
            Seed::named(Kind::Json, "trainer_state.json", *state),
        ]
    },
    tokens: &[
        "\"step\":",
        "\"loss\":",
        "1e400",
        "-1",
        "18446744073709551615",
        "[[]]",
    ],
    read: |path| read(path.parent().unwrap_or(path)).map(|_| ()),
};

pub const RECORDS: Target = Target {
    name: "losses-records",
    n_quick: 1000,
    seeds: || {
        let events = fixture("tensorboard/runs/first/events.out.tfevents.0.host");
        let records = event_records(&events);
        let wandb = fixture("wandb/wandb/offline-run-20231114_221320-first/run-first.wandb");
        let length = usize::from(u16::from_le_bytes([wandb[11], wandb[12]]));
        vec![
            Seed::named(Kind::Fields, "event", records[2]),
            Seed::named(Kind::Fields, "row", &wandb[14..14 + length]),
        ]
    },
    tokens: &[
        "train/loss",
        "eval/loss",
        "_step",
        "NaN",
        "1e400",
        "-1",
        "[[]]",
    ],
    read: |path| {
        let record = std::fs::read(path).map_err(|e| e.to_string())?;
        let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (name, file) = if path.ends_with("event") {
            (EVENTS, as_event(&record))
        } else {
            (WANDB, as_row(&record[..record.len().min(32_000)]))
        };
        std::fs::write(directory.path().join(name), file).map_err(|e| e.to_string())?;
        match read(directory.path())? {
            0 => Err("no loss is in it".to_owned()),
            _ => Ok(()),
        }
    },
};

/// Returns the number of values.
fn read(directory: &Path) -> Result<usize, String> {
    let mut n = 0;
    let mut reader = LossReader::default();
    let roots = [directory.to_path_buf()];
    loop {
        let news = reader.poll(&roots, &[]);
        for (_, curve) in news.losses.iter().flat_map(|losses| losses.named()) {
            n += curve.len();
            let _ = [0, 15, u64::MAX].map(|step| (curve.at(step), curve.before(step, 8)));
        }
        if let Some(note) = news.notes.first() {
            return Err(note.clone());
        }
        if !news.has_more {
            return Ok(n);
        }
    }
}

fn event_records(mut file: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((length, rest)) = file.split_first_chunk::<8>() {
        let length = u64::from_le_bytes(*length) as usize;
        records.push(&rest[4..4 + length]);
        file = &rest[8 + length..];
    }
    records
}

/// A check of 32 bits, bit by bit.
fn sum(polynomial: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32| (sum >> 1) ^ (polynomial * (sum & 1));
    let all = bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| step(sum))
    });
    !all
}

fn as_event(record: &[u8]) -> Vec<u8> {
    let masked = |bytes: &[u8]| {
        let sum = sum(0x82f6_3b78, bytes).rotate_right(15);
        sum.wrapping_add(0xa282_ead8).to_le_bytes()
    };
    let length = (record.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), record, &masked(record)].concat()
}

fn as_row(record: &[u8]) -> Vec<u8> {
    let sum = sum(0xedb8_8320, &[&[1], record].concat()).to_le_bytes();
    let length = (record.len() as u16).to_le_bytes();
    [b":W&B\xe1\xbe\0", &sum[..], &length, &[1], record].concat()
}
