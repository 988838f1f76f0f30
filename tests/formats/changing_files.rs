//! Files that another process rewrites in place while they are read: never a signal, never a mixture of two saves.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use attnscope_checkpoint::Checkpoint;
use attnscope_compute::error::{Error, Result};
use testing::checkpoint_copy::{Stored, Weights, file_of};

/// How long a trainer saves beside the readers.
const SAVES_FOR: Duration = Duration::from_millis(1500);

/// A save whose every number is `value`.
fn save_of(value: f32) -> Vec<u8> {
    let names = ["a", "b", "c", "d"];
    let stored = || Stored::f32(&[512, 256], &vec![value; 512 * 256]);
    let weights: Weights = names.map(|name| (name.to_owned(), stored())).into();
    file_of(&weights)
}

/// How a trainer writes.
#[derive(Debug, Clone, Copy)]
enum Saves {
    /// As `torch.save` does: the file is emptied, then filled piece by piece.
    Truncating,
    /// The file keeps its length, and its bytes are replaced piece by piece.
    InPlace,
    /// As `InPlace`, in a single write: its times are set before its bytes arrive.
    AtOnce,
    /// Into another file, which takes the place of the first.
    Renaming,
}

fn save(how: Saves, path: &Path, bytes: &[u8]) {
    let other = path.with_extension("other");
    let mut file = match how {
        Saves::Truncating => fs::File::create(path).expect("opens"),
        Saves::InPlace | Saves::AtOnce => fs::OpenOptions::new()
            .write(true)
            .open(path)
            .expect("opens"),
        Saves::Renaming => fs::File::create(&other).expect("opens"),
    };
    file.seek(SeekFrom::Start(0)).expect("seeks");
    let n_pieces = if matches!(how, Saves::AtOnce) { 1 } else { 16 };
    for piece in bytes.chunks(bytes.len().div_ceil(n_pieces)) {
        file.write_all(piece).expect("writes");
        std::thread::sleep(Duration::from_micros(300));
    }
    if matches!(how, Saves::Renaming) {
        fs::rename(&other, path).expect("renames");
    }
}

/// Ends the trainer, whatever ends the readers.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The one number of a save, from a whole reading of it.
fn read_all(path: &Path) -> Result<f32> {
    let checkpoint = Checkpoint::open(path)?;
    let mut seen = Vec::new();
    for (name, _) in checkpoint.tensors.iter() {
        checkpoint.unchanged()?;
        let view = checkpoint.tensors.get(name).expect("a name it gave");
        let values = view.widen()?;
        let first = values[0];
        assert!(values.iter().all(|v| *v == first), "{name} is of two saves");
        seen.push(first);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    Ok(seen[0])
}

#[test]
fn no_reading_mixes_two_saves_and_every_other_says_why() {
    for how in [
        Saves::Truncating,
        Saves::InPlace,
        Saves::AtOnce,
        Saves::Renaming,
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.safetensors");
        fs::write(&path, save_of(0.0)).expect("writes");
        let is_over = AtomicBool::new(false);
        let (mut n_whole, mut n_changed) = (0, 0);
        std::thread::scope(|scope| {
            let _end = End(&is_over);
            scope.spawn(|| {
                let mut n = 0u8;
                while !is_over.load(Ordering::Relaxed) {
                    n = n.wrapping_add(1);
                    save(how, &path, &save_of(f32::from(n)));
                    std::thread::sleep(Duration::from_millis(8));
                }
            });
            let start = Instant::now();
            while start.elapsed() < SAVES_FOR {
                match read_all(&path) {
                    Ok(_) => n_whole += 1,
                    Err(Error::Changed { .. }) => n_changed += 1,
                    // Half a save that nobody wrote to while it was looked at.
                    Err(Error::File { problem, .. }) => {
                        assert!(
                            problem.contains("safetensors") || problem.contains("truncated"),
                            "{problem}"
                        );
                    }
                    Err(other) => panic!("{how:?}: {other}"),
                }
            }
        });
        assert!(
            n_whole > 0 && n_changed > 0,
            "{how:?}: {n_whole} whole, {n_changed} changed"
        );
    }
}

#[test]
fn a_shard_that_was_replaced_belongs_to_another_save() {
    let copy = testing::checkpoint_copy::Copy::of("gpt2");
    copy.shard();
    let checkpoint = Checkpoint::open(copy.path()).expect("opens");
    checkpoint.unchanged().expect("as it was");
    let shard = copy.file("model-00002-of-00002.safetensors");
    let other = copy.file("other");
    fs::copy(&shard, &other).expect("copies");
    fs::rename(&other, &shard).expect("renames");
    let said = checkpoint.unchanged().expect_err("replaced").to_string();
    assert!(
        said.contains("model-00002") && said.contains("another file took its place"),
        "{said}"
    );
}

#[test]
fn a_configuration_that_was_rewritten_is_noticed() {
    let copy = testing::checkpoint_copy::Copy::of("gpt2");
    let checkpoint = Checkpoint::open(copy.path()).expect("opens");
    copy.config(|config| drop(config.insert("n_head".to_owned(), 4.into())));
    let said = checkpoint.unchanged().expect_err("rewritten").to_string();
    assert!(said.contains("config.json"), "{said}");
}
