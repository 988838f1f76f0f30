//! Thousands of damaged headers and configurations: each is refused or read correctly, never a panic, never much memory.

use std::cell::Cell;

use attnscope_checkpoint::Checkpoint;
use attnscope_spec::Model;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testing::alone::{is_alone, peak_memory};
use testing::checkpoint_copy::{Copy, Weights, file_of, put_together, take_apart, weights};
use testing::effort::tries;

/// Byte values that mean something to a JSON reader, and some that mean nothing to anyone.
const BYTES: &[u8] = b"0123456789[]{}:,\"\\eE-+.nulltruefalse \0\x7f\xff\xc3";

/// Values that a number, a name or a list is replaced by.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(63),
        json!(2.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1u64 << 26),
        json!((1u64 << 26) + 1),
        json!(1u64 << 61),
        json!(1e300),
        json!(""),
        json!("F8_E4M3"),
        json!("I64"),
        json!("BF16"),
        json!("x".repeat(5000)),
        json!([]),
        json!({}),
        json!([0, 0]),
        json!([8, 0]),
        json!([u64::MAX, u64::MAX]),
        json!([1u64 << 32, 1u64 << 32]),
        json!([[[[1]]]]),
    ]
}

/// A family whose weights are cut down to what its first layer needs, so that a file is a few kilobytes.
fn small(family: &str) -> Copy {
    let copy = Copy::of(family);
    let layers_key = if family == "gpt2" {
        "n_layer"
    } else {
        "num_hidden_layers"
    };
    copy.config(|config| {
        config.insert(layers_key.to_owned(), json!(1));
    });
    copy.weights(|weights| {
        weights.retain(|name, _| !name.contains(".1.") && !name.contains(".2."))
    });
    copy
}

/// Opens what is there; whatever can be opened must also be what the file says, even if no family can read it.
fn open(copy: &Copy) -> Option<Model> {
    let checkpoint = Checkpoint::open(copy.path()).ok()?;
    for (name, info) in checkpoint.tensors.iter() {
        let view = checkpoint
            .tensors
            .get(name)
            .expect("a tensor that is listed");
        assert_eq!(
            info.n_bytes(),
            info.n_elements() * info.dtype.size(),
            "{name}"
        );
        let n_values = if info.dtype.is_float() {
            info.n_elements()
        } else {
            0
        };
        assert_eq!(view.widen().expect("reads").len(), n_values, "{name}");
    }
    let model = attnscope_families::read(checkpoint).ok()?;
    for (name, shape) in model.spec.needed_tensors() {
        let info = model
            .checkpoint
            .tensors
            .info(name)
            .expect("a tensor that was checked");
        assert_eq!(info.shape, shape, "{name}");
    }
    Some(model)
}

/// Replaces, inserts or removes one byte.
fn damage(bytes: &mut Vec<u8>, at: usize, how: u8, byte: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = at % bytes.len();
    match how % 4 {
        0 => bytes[at] = byte,
        1 => bytes.insert(at, byte),
        2 => {
            bytes.remove(at);
        }
        _ => bytes[at] ^= 1 << (byte % 8),
    }
}

/// Visits every value inside a JSON value, and replaces the one whose turn it is.
fn replace(value: &mut Value, turn: &mut usize, with: &Value) {
    if *turn == 0 {
        *value = with.clone();
    }
    *turn = turn.wrapping_sub(1);
    match value {
        Value::Array(inside) => inside.iter_mut().for_each(|v| replace(v, turn, with)),
        Value::Object(inside) => inside.values_mut().for_each(|v| replace(v, turn, with)),
        _ => {}
    }
}

fn runner(cases: u32) -> TestRunner {
    let cases = tries(cases, 3);
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

fn edits() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    let byte = prop_oneof![3 => prop::sample::select(BYTES), 1 => any::<u8>()];
    prop::collection::vec((any::<usize>(), any::<u8>(), byte), 1..4)
}

/// How many damaged checkpoints could be read, and how many were refused.
#[derive(Debug, Default)]
struct Tally {
    n_read: Cell<usize>,
    n_refused: Cell<usize>,
}

impl Tally {
    /// Opens a checkpoint and counts what became of it.
    fn open(&self, copy: &Copy) -> Option<Model> {
        let model = open(copy);
        let count = if model.is_some() {
            &self.n_read
        } else {
            &self.n_refused
        };
        count.set(count.get() + 1);
        model
    }

    /// Both must have happened often enough for the test to mean something.
    fn holds_at_least(&self, n_read: usize, n_refused: usize) {
        let is_enough = self.n_read.get() >= n_read && self.n_refused.get() >= n_refused;
        assert!(is_enough, "{self:?}");
    }
}

#[test]
fn damaged_bytes_of_a_header_are_refused_or_read_correctly() {
    let copy = small("gpt2");
    let whole = copy.weight_bytes();
    let (_, data) = take_apart(&whole);
    let header_end = whole.len() - data.len();
    let healthy = weights(&whole);
    let tally = Tally::default();
    runner(330)
        .run(&edits(), |edits| {
            let mut bytes = whole.clone();
            for (at, how, byte) in edits {
                let mut header = bytes[..header_end].to_vec();
                damage(&mut header, at, how, byte);
                // The length before the header is left right or wrong as it comes.
                bytes = [&header, &data[..]].concat();
            }
            copy.write("model.safetensors", &bytes);
            if let Some(model) = tally.open(&copy) {
                for (name, stored) in &healthy {
                    // A name that was damaged is another tensor, and nobody's business.
                    if let Some(info) = model.checkpoint.tensors.info(name) {
                        prop_assert_eq!(info.n_bytes(), stored.bytes.len());
                    }
                }
            }
            Ok(())
        })
        .expect("no damage goes unnoticed");
    tally.holds_at_least(0, 160);
}

#[test]
fn odd_values_in_a_header_are_refused_or_read_correctly() {
    let copy = small("llama");
    let (header, data) = take_apart(&copy.weight_bytes());
    let odd = odd_values();
    let tally = Tally::default();
    let places = (0usize..120, prop::sample::select(odd));
    runner(230)
        .run(&places, |(turn, with)| {
            let mut damaged = header.clone();
            replace(&mut damaged, &mut turn.clone(), &with);
            copy.write("model.safetensors", put_together(&damaged, &data));
            tally.open(&copy);
            Ok(())
        })
        .expect("no damage goes unnoticed");
    tally.holds_at_least(0, 110);
}

#[test]
fn damaged_configurations_are_refused_or_read_correctly() {
    if !is_alone("damaged_bytes::damaged_configurations_are_refused_or_read_correctly") {
        return;
    }
    let before = peak_memory();
    for family in ["gpt2", "llama", "bert"] {
        let copy = small(family);
        let whole = std::fs::read(copy.file("config.json")).expect("reads");
        let parsed: Value = serde_json::from_slice(&whole).expect("JSON");
        let tally = Tally::default();
        runner(100)
            .run(&edits(), |edits| {
                let mut bytes = whole.clone();
                for (at, how, byte) in edits {
                    damage(&mut bytes, at, how, byte);
                }
                copy.write("config.json", &bytes);
                tally.open(&copy);
                Ok(())
            })
            .expect("no damage goes unnoticed");
        let places = (0usize..40, prop::sample::select(odd_values()));
        runner(100)
            .run(&places, |(turn, with)| {
                let mut damaged = parsed.clone();
                replace(&mut damaged, &mut turn.clone(), &with);
                copy.write("config.json", damaged.to_string());
                tally.open(&copy);
                Ok(())
            })
            .expect("no damage goes unnoticed");
        tally.holds_at_least(15, 15);
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        // The kernel counts in steps: what was the peak may be a few pages less when it is asked again.
        let grown = after.saturating_sub(before);
        assert!(grown < 256 * 1024, "memory grew by {grown} KiB");
    }
}

#[test]
fn damaged_indices_are_refused_or_read_correctly() {
    let copy = small("gpt2");
    copy.shard();
    let whole = std::fs::read(copy.file("model.safetensors.index.json")).expect("reads");
    let tally = Tally::default();
    runner(100)
        .run(&edits(), |edits| {
            let mut bytes = whole.clone();
            for (at, how, byte) in edits {
                damage(&mut bytes, at, how, byte);
            }
            copy.write("model.safetensors.index.json", &bytes);
            tally.open(&copy);
            Ok(())
        })
        .expect("no damage goes unnoticed");
    tally.holds_at_least(0, 33);
}

#[test]
fn what_is_taken_apart_and_put_together_is_the_same_checkpoint() {
    // The tests above mean nothing unless the undamaged copy opens.
    for family in ["gpt2", "llama", "bert"] {
        let copy = small(family);
        assert!(open(&copy).is_some(), "{family}");
        let all: Weights = weights(&copy.weight_bytes());
        assert_eq!(weights(&file_of(&all)), all);
    }
}
