//! Losses in files that TensorBoard, tensorboardX and W&B wrote: whole, growing, cut, damaged and hostile.

use std::fs;
use std::path::{Path, PathBuf};

use attnscope_history::{Curve, LossReader, Losses};

fn fixture(name: &str) -> PathBuf {
    testing::root().join("fixtures/losses").join(name)
}

/// The files below the fixtures, relative to the run.
const FILES: [(&str, &str, &str); 3] = [
    (
        "tensorboard",
        "TensorBoard",
        "runs/first/events.out.tfevents.0.host",
    ),
    (
        "tensorboardX",
        "TensorBoard",
        "runs/first/events.out.tfevents.0.host",
    ),
    (
        "wandb",
        "W&B",
        "wandb/offline-run-20231114_221320-first/run-first.wandb",
    ),
];

/// The training loss that `make_losses.py` logs.
fn training(step: u64) -> f64 {
    let loss = 4.0 - step as f64 / 100.0 + 0.01 * (step % 3) as f64;
    (loss * 1e4).round() / 1e4
}

/// Reads everything beside the checkpoints of a run.
fn read(reader: &mut LossReader, run: &Path) -> (Option<Losses>, Vec<String>) {
    let (mut losses, mut notes) = (None, Vec::new());
    loop {
        let news = reader.poll(&[run.to_path_buf()], &[]);
        notes.extend(news.notes);
        losses = news.losses.map(|losses| (*losses).clone()).or(losses);
        if !news.has_more {
            return (losses, notes);
        }
    }
}

fn values(curve: Option<&Curve>) -> Vec<Option<f64>> {
    let at = |step| curve.and_then(|curve| curve.at(step));
    (10..=200).step_by(10).map(at).collect()
}

/// A run with one file of a logger, with these bytes.
fn run_with(path: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let run = tempfile::tempdir().expect("a directory");
    let path = run.path().join(path);
    fs::create_dir_all(path.parent().expect("a directory")).expect("makes");
    fs::write(&path, bytes).expect("writes");
    (run, path)
}

#[test]
fn losses_are_those_that_were_logged() {
    let expected: Vec<Option<f64>> = (10..=200).step_by(10).map(training).map(Some).collect();
    for (name, logger, _) in FILES {
        let (losses, notes) = read(&mut LossReader::default(), &fixture(name));
        let losses = losses.expect("losses");
        let [training, evaluation] = [&losses.training, &losses.evaluation];
        assert_eq!(values(training.as_ref()), expected, "{name}");
        let training = training.as_ref().expect("a loss");
        assert_eq!(
            (training.name.as_str(), training.logger),
            ("train/loss", logger)
        );
        let evaluation = evaluation.as_ref().expect("a loss");
        assert_eq!(
            (evaluation.name.as_str(), evaluation.len()),
            ("eval/loss", 2)
        );
        let at = [99, 100, 199, 200].map(|step| evaluation.at(step));
        assert_eq!(at, [None, Some(3.25), Some(3.25), Some(2.25)], "{name}");
        assert_eq!(notes, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_file_that_grows_is_read_from_where_it_ended() {
    for (name, _, path) in FILES {
        let bytes = fs::read(fixture(name).join(path)).expect("reads");
        let whole = read(&mut LossReader::default(), &fixture(name)).0;
        let (run, path) = run_with(path, b"");
        let mut reader = LossReader::default();
        let mut last = read(&mut reader, run.path()).0;
        // Neither end of a record nor of a block falls on these.
        for end in (0..bytes.len()).step_by(61).chain([bytes.len()]) {
            fs::write(&path, &bytes[..end]).expect("writes");
            let (losses, notes) = read(&mut reader, run.path());
            assert_eq!(notes, Vec::<String>::new(), "{name}: cut at {end}");
            last = losses.or(last);
        }
        assert_eq!(last, whole, "{name}");
        // Nothing new is no news; a file that begins anew is read from its beginning.
        assert_eq!(read(&mut reader, run.path()).0, None);
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writes");
        let half = read(&mut reader, run.path()).0.expect("losses");
        assert!(half.training.expect("a loss").len() < 20, "{name}");
        fs::remove_file(&path).expect("removes");
        assert_eq!(read(&mut reader, run.path()).0, Some(Losses::default()));
    }
}

#[test]
fn a_damaged_file_is_named_once_and_read_as_far_as_it_can_be() {
    for (name, _, path) in FILES {
        let mut bytes = fs::read(fixture(name).join(path)).expect("reads");
        let at = bytes.len() / 2;
        bytes[at] ^= 0x55;
        let (run, path) = run_with(path, &bytes);
        let mut reader = LossReader::default();
        let (losses, notes) = read(&mut reader, run.path());
        assert_eq!(notes.len(), 1, "{name}: {notes:?}");
        assert!(
            notes[0].starts_with(&path.display().to_string()),
            "{notes:?}"
        );
        let losses = losses.expect("losses");
        let n: usize = losses.named().map(|(_, curve)| curve.len()).sum();
        assert!((5..22).contains(&n), "{name}: {n:?}");
        // It grows: the same damage is told no more.
        bytes.extend([0; 9]);
        fs::write(&path, &bytes).expect("writes");
        assert_eq!(read(&mut reader, run.path()).1, Vec::<String>::new());
    }
}

#[test]
fn no_byte_that_is_changed_makes_a_reader_stumble() {
    for (name, _, path) in FILES {
        let bytes = fs::read(fixture(name).join(path)).expect("reads");
        let (run, path) = run_with(path, b"");
        for at in (0..bytes.len()).step_by(31) {
            for to in [0, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = to;
                fs::write(&path, &changed).expect("writes");
                read(&mut LossReader::default(), run.path());
            }
        }
    }
}

#[test]
fn a_training_that_was_started_again_goes_on_in_another_file() {
    let (_, _, path) = FILES[0];
    let first = fs::read(fixture("tensorboard").join(path)).expect("reads");
    // The first run was killed in the middle, and what it wrote last does not count.
    let (run, _) = run_with("runs/b-first/events.out.tfevents.1.host", &first[..900]);
    let second = run.path().join("runs/a-second/events.out.tfevents.2.host");
    fs::create_dir_all(second.parent().expect("a directory")).expect("makes");
    // The clock of the second file begins later, though its name comes first.
    let second_bytes = later(&first);
    fs::write(&second, second_bytes).expect("writes");
    let losses = read(&mut LossReader::default(), run.path())
        .0
        .expect("losses");
    let curve = losses.training.expect("a loss");
    assert_eq!((curve.len(), curve.at(200)), (20, Some(training(200))));
}

/// Leaves out the first record of an event file: the next one is later.
fn later(bytes: &[u8]) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    bytes[length as usize + 16..].to_vec()
}

#[test]
fn the_state_of_the_trainer_comes_before_other_logs() {
    let (_, _, path) = FILES[0];
    let bytes = fs::read(fixture("tensorboard").join(path)).expect("reads");
    let (run, _) = run_with(path, &bytes);
    let state = run.path().join("trainer_state.json");
    let text = r#"{"global_step": 20, "log_history": [{"loss": 9.5, "step": 10}, {"loss": 9.25, "step": 20}]}"#;
    fs::write(&state, text).expect("writes");
    let mut reader = LossReader::default();
    let losses = read(&mut reader, run.path()).0.expect("losses");
    let training = losses.training.expect("a loss");
    assert_eq!(
        (training.logger, training.at(20)),
        ("trainer_state.json", Some(9.25))
    );
    assert_eq!(losses.evaluation.expect("a loss").logger, "TensorBoard");
    // A damaged one is named, and the others are read.
    fs::write(&state, &text[..40]).expect("writes");
    let (losses, notes) = read(&mut reader, run.path());
    let training = losses.and_then(|losses| losses.training).expect("a loss");
    assert_eq!(training.logger, "TensorBoard");
    assert!(
        notes.len() == 1 && notes[0].contains("trainer_state.json"),
        "{notes:?}"
    );
}
