//! Thousands of damaged PyTorch files: each is refused or read within its bytes, never a panic, never much memory.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testing::alone::{is_alone, peak_memory};
use testing::effort::{some_of, tries};
use testing::pickle_parts::open;

/// Bytes that mean something in a pickle or an archive.
const BYTES: &[u8] =
    b"().RQbcio0123}]tuesalNKMJGXBTUVSIFLpqrghj\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x90\x91\x92\x93\x94\x95\x96PK\n\0\x01\x7f\xff";

fn fixture(file: &str) -> Vec<u8> {
    let directory = testing::root().join("fixtures/formats/pytorch");
    std::fs::read(directory.join(file)).expect("reads")
}

/// Whether the bytes can be read; what is read must fit its description.
fn reads(bytes: &[u8]) -> bool {
    let Ok(found) = open(bytes) else {
        return false;
    };
    for (name, info) in found.tensors.iter() {
        let n = info.n_elements();
        assert!(info.n_bytes() <= bytes.len(), "{name}");
        let values = found
            .tensors
            .get(name)
            .expect("a tensor")
            .widen()
            .expect("reads");
        let n_values = if info.dtype.is_float() { n } else { 0 };
        assert_eq!(values.len(), n_values, "{name}");
    }
    true
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

fn edits() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    let byte = prop_oneof![2 => prop::sample::select(BYTES), 1 => any::<u8>()];
    prop::collection::vec((any::<usize>(), any::<u8>(), byte), 1..4)
}

fn damage(bytes: &mut Vec<u8>, at: usize, how: u8, byte: u8) {
    if bytes.is_empty() {
        return;
    }
    let at = at % bytes.len();
    match how % 16 {
        0 => bytes.insert(at, byte),
        1 => {
            bytes.remove(at);
        }
        2 => bytes.truncate(at),
        3..9 => bytes[at] = byte,
        _ => bytes[at] ^= 1 << (byte % 8),
    }
}

#[test]
fn damaged_files_are_refused_or_read_within_their_bytes() {
    if !is_alone("pytorch_damaged::damaged_files_are_refused_or_read_within_their_bytes") {
        return;
    }
    let before = peak_memory();
    let n_edits = tries(250, 4);
    for file in ["zip.pt", "legacy.pt", "trainer.pt", "trainer_legacy.pt"] {
        let whole = fixture(file);
        let n_read = std::cell::Cell::new(0u32);
        runner(n_edits)
            .run(&edits(), |edits| {
                let mut bytes = whole.clone();
                for (at, how, byte) in edits {
                    damage(&mut bytes, at, how, byte);
                }
                n_read.set(n_read.get() + u32::from(reads(&bytes)));
                Ok(())
            })
            .expect("no damage goes unnoticed");
        let n_read = n_read.get();
        let (least, most) = (n_edits / 100, n_edits - n_edits / 100);
        assert!(
            (least..most).contains(&n_read),
            "{file}: {n_read} of {n_edits} read"
        );
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        // The kernel counts in steps: what was the peak may be a few pages less when it is asked again.
        let grown = after.saturating_sub(before);
        assert!(grown < 128 * 1024, "memory grew by {grown} KiB");
    }
}

#[test]
fn every_truncation_is_refused() {
    for file in ["parallel.pth", "trainer_legacy.pt"] {
        let whole = fixture(file);
        assert!(reads(&whole), "{file}");
        for n in some_of((0..whole.len()).step_by(3), 4) {
            assert!(!reads(&whole[..n]), "{file}: {n} bytes");
        }
    }
}

#[test]
fn every_byte_of_a_plain_pickle_may_be_wrong() {
    for protocol in 0..6 {
        let whole = fixture(&format!("meta{protocol}.pkl"));
        for at in 0..whole.len() {
            for byte in some_of(BYTES.iter().skip(at % 4), 4) {
                let mut bytes = whole.clone();
                bytes[at] = *byte;
                // An error or a value: what counts is that it comes back.
                let read =
                    attnscope_checkpoint::pytorch::plain_pickle(&bytes, Path::new("meta.pkl"));
                let n = read.map_or(0, |value| value.to_string().len());
                assert!(n < 1 << 20, "protocol {protocol}, byte {at}");
            }
        }
    }
}
