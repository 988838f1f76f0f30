//! Batches of many units: packed parts, directories by prefix, merges by shares, and the cost that is said before the start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use testing::checkpoint_copy::{attnscope, text};

use super::batch_command::{Runs, ended};

/// Files below a directory with an ending, in order.
fn below(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(below(&path, ending));
        } else if path.extension().is_some_and(|of| of == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Packed parts of a batch.
fn packs(runs: &Runs) -> Vec<PathBuf> {
    below(&runs.at("batch/parts"), "units")
}

/// What a merge writes, with more flags.
fn merge(runs: &Runs, more: &[&str]) -> Vec<u8> {
    let output = runs.merge(&[more, &["--fail-on", "never"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output.stdout
}

/// Merges in so many shares, joins them, and compares with a merge in one go in every format.
fn check_shares(runs: &Runs, n: usize) {
    let shares = n.to_string();
    for idx in 0..n {
        let output = runs.merge(&["--shard", &format!("{idx}/{n}")]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(said.contains(&format!("shard {idx}/{n}:")), "{said}");
    }
    for format in ["parquet", "csv", "json", "html"] {
        let joined = merge(runs, &["--join", &shares, "--format", format]);
        let whole = merge(runs, &["--format", format]);
        assert!(joined == whole, "{format} of {n} shares is another one");
    }
}

#[test]
fn packed_shards_merge_to_the_table_of_one_process_and_are_done_once() {
    let runs = Runs::new(&[50, 450, 7], 8);
    for shard in ["0/2", "1/2"] {
        runs.ran(&["--layout", "packed", "--shard", shard], 0);
    }
    // One file for each checkpoint, and nothing else.
    assert_eq!(packs(&runs).len(), 3);
    assert_eq!(below(&runs.at("batch/parts"), "json"), [] as [PathBuf; 0]);
    runs.check_whole();
    let before = packs(&runs);
    for layout in ["packed", "files", "directories"] {
        let said = runs.ran(&["--layout", layout], 0);
        assert!(said.contains("0 units done, 9 already there"), "{said}");
    }
    assert_eq!(packs(&runs), before);
    for n in [1, 2, 5] {
        check_shares(&runs, n);
    }
}

#[test]
fn units_of_all_layouts_merge_and_a_unit_that_is_there_twice_counts_once() {
    let runs = Runs::new(&[1, 2, 3, 4], 7);
    runs.ran(&["--shard", "0/4"], 0);
    runs.ran(&["--layout", "directories", "--shard", "1/4"], 0);
    runs.ran(&["--layout", "packed", "--shard", "2/4"], 0);
    let ids: Vec<PathBuf> = below(&runs.at("batch/parts"), "json");
    let in_directory = |path: &&PathBuf| {
        let parent = path.parent().and_then(Path::file_name).expect("a name");
        let id = path.file_stem().expect("a name").to_string_lossy();
        id.starts_with(&*parent.to_string_lossy())
    };
    assert_eq!((ids.len(), ids.iter().filter(in_directory).count()), (6, 3));
    // Two workers did the same units, since neither saw the other's.
    let hidden = runs.at("hidden");
    fs::rename(runs.at("batch/parts"), &hidden).expect("moves");
    runs.ran(&["--layout", "packed", "--slice", "0"], 0);
    for path in packs(&runs) {
        let below = path.strip_prefix(runs.at("batch/parts")).expect("below");
        fs::create_dir_all(hidden.join(below).parent().expect("a directory")).expect("makes");
        fs::rename(&path, hidden.join(below)).expect("moves");
    }
    fs::remove_dir_all(runs.at("batch/parts")).expect("removes");
    fs::rename(&hidden, runs.at("batch/parts")).expect("moves");
    runs.check_whole();
    check_shares(&runs, 3);
    let (_, merged) = runs.merged(&["--fail-on", "never"]);
    let units = serde_json::json!({"done": 12, "failed": 0, "missing": 0});
    assert_eq!(merged["units"], units);
}

#[test]
fn a_torn_block_and_a_damaged_one_are_done_again() {
    let runs = Runs::new(&[1, 2], 9);
    runs.ran(&["--layout", "packed", "--slice", "0"], 0);
    let path = packs(&runs).remove(0);
    let whole = fs::read(&path).expect("reads");
    // The last block was not written to its end.
    fs::write(&path, &whole[..whole.len() - 5]).expect("writes");
    let (code, merged) = runs.merged(&[]);
    assert_eq!((code, &merged["units"]["missing"]), (Some(2), &1.into()));
    let said = runs.ran(&["--layout", "packed"], 0);
    assert!(said.contains("1 unit done, 5 already there"), "{said}");
    assert_eq!(packs(&runs).len(), 3);
    runs.check_whole();
    // A byte in the middle of the rows of the second block.
    let mut bytes = fs::read(&path).expect("reads");
    let magic = b"attnscope-units 1 ";
    let heads = bytes.windows(magic.len()).enumerate();
    let heads: Vec<usize> = heads
        .filter(|(_, at)| *at == magic)
        .map(|(at, _)| at)
        .collect();
    bytes[heads[2] - 40] ^= 1;
    fs::write(&path, &bytes).expect("writes");
    let output = runs.merge(&["--format", "csv"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let name = path.strip_prefix(runs.at("batch")).expect("below");
    let name = name.display().to_string();
    assert!(
        said.contains(&name) && said.contains("is damaged"),
        "{said}"
    );
    assert!(said.contains(": 3 prompts, 3 to 5"), "{said}");
    assert!(said.contains("1 missing"), "{said}");
    // Records of the first block: nothing of it can be trusted.
    bytes[150] ^= 1;
    fs::write(&path, &bytes).expect("writes");
    let (code, merged) = runs.merged(&[]);
    assert_eq!((code, &merged["units"]["missing"]), (Some(2), &2.into()));
    let said = runs.ran(&["--layout", "packed"], 0);
    assert!(said.contains("2 units done, 4 already there"), "{said}");
    runs.check_whole();
    check_shares(&runs, 2);
}

#[test]
fn failed_units_of_packed_parts_are_tried_again_when_asked() {
    let runs = Runs::new(&[1, 2], 4);
    let packed = ["--layout", "packed"];
    runs.ran(&[&packed[..], &["--unit-timeout", "0.000001"]].concat(), 2);
    let (code, merged) = runs.merged(&[]);
    assert_eq!((code, &merged["units"]["failed"]), (Some(2), &4.into()));
    let said = runs.ran(&packed, 2);
    assert!(said.contains("4 failed before"), "{said}");
    runs.ran(&[&packed[..], &["--retry-failed"]].concat(), 0);
    runs.check_whole();
}

/// The small version of `tests/cluster/kill.py`, packed.
#[cfg(unix)]
#[test]
fn packing_workers_that_are_killed_lose_nothing_that_was_written() {
    let steps: Vec<u64> = (0..6).collect();
    let runs = Runs::new(&steps, 9);
    let mut moments = fastrand::Rng::with_seed(21);
    let packed: &[&str] = &["--layout", "packed", "--slice", "0"];
    let shares = [&["--shard", "0/2"][..], &["--shard", "1/2"], &[]];
    for _ in 0..5 {
        let mut workers = shares.map(|share| {
            let mut command = runs.batch(&[packed, share].concat());
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().expect("starts")
        });
        for worker in &mut workers {
            thread::sleep(Duration::from_millis(moments.u64(1..40)));
            worker.kill().expect("is there or has ended");
        }
        workers.iter_mut().for_each(|worker| drop(worker.wait()));
    }
    runs.ran(packed, 0);
    let said = runs.ran(packed, 0);
    assert!(said.contains("0 units done, 18 already there"), "{said}");
    runs.check_whole();
}

/// A limit of file sizes fails as a full disk does.
#[cfg(unix)]
#[test]
fn a_full_disk_is_one_error_and_what_was_written_stays() {
    let runs = Runs::new(&[1, 2], 30);
    let limited = |n_blocks: usize| {
        let mut shell = Command::new("sh");
        let limit = format!("ulimit -f {n_blocks}; exec \"$@\"");
        shell.args(["-c", &limit, "sh"]);
        let batch = runs.batch(&["--layout", "packed", "--slice", "0"]);
        shell.arg(batch.get_program()).args(batch.get_args());
        shell.output().expect("starts")
    };
    let output = limited(64);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("written"))
        .collect();
    assert!(errors.len() == 1 && errors[0].contains(".units"), "{said}");
    let (_, merged) = runs.merged(&["--partial"]);
    let n_done = merged["units"]["done"].as_u64().expect("a number");
    assert!((1..10).contains(&n_done), "{n_done} units");
    let said = runs.ran(&["--layout", "packed"], 0);
    let left = format!("{} units done", 20 - n_done);
    assert!(
        said.contains(&left) && said.contains(&format!("{n_done} already there")),
        "{said}"
    );
    runs.check_whole();
}

#[test]
fn a_place_that_cannot_be_written_is_one_error() {
    let runs = Runs::new(&[1, 2], 3);
    runs.ran(&["--layout", "packed"], 0);
    let directory = packs(&runs)[0].parent().expect("a directory").to_path_buf();
    fs::remove_dir_all(&directory).expect("removes");
    fs::write(&directory, "in the way").expect("writes");
    let said = runs.ran(&["--layout", "packed"], 2);
    let name = directory.file_name().expect("a name").to_string_lossy();
    assert_eq!(said.matches(&*name).count(), 1, "{said}");
    runs.ran(&["--layout", "files"], 0);
    runs.check_whole();
}

#[test]
fn shares_that_are_missing_damaged_or_early_are_named() {
    let runs = Runs::new(&[1, 2, 3], 4);
    runs.ran(&["--layout", "packed", "--shard", "0/2"], 0);
    let said = |output: std::process::Output, code: i32| ended(output, code);
    for idx in ["0/2", "1/2"] {
        said(runs.merge(&["--shard", idx]), 0);
    }
    let missing = said(runs.merge(&["--join", "3", "--format", "csv"]), 2);
    assert!(missing.contains("attnscope merge --shard 0/3"), "{missing}");
    // Units that are missing are those of one go.
    let whole = runs.merge(&["--format", "json"]);
    let joined = runs.merge(&["--join", "2", "--format", "json"]);
    assert_eq!(
        (joined.status.code(), whole.status.code()),
        (Some(2), Some(2))
    );
    assert!(joined.stdout == whole.stdout);
    thread::sleep(Duration::from_millis(20));
    runs.ran(&["--layout", "packed"], 0);
    let early = said(runs.merge(&["--join", "2", "--format", "csv"]), 2);
    assert!(early.contains("units were added after --shard"), "{early}");
    check_shares(&runs, 2);
    let table = runs.at("batch/merged/1-of-2.parquet");
    let bytes = fs::read(&table).expect("reads");
    fs::write(&table, &bytes[..bytes.len() - 1]).expect("writes");
    let damaged = said(runs.merge(&["--join", "2", "--format", "csv"]), 2);
    assert!(
        damaged.contains("1-of-2.parquet") && damaged.contains("--shard 1/2"),
        "{damaged}"
    );
    let refused = said(runs.merge(&["--shard", "0/2", "--join", "2"]), 2);
    assert!(refused.contains("--join"), "{refused}");
}

#[test]
fn a_scheduler_tells_a_merge_its_share() {
    let runs = Runs::new(&[1, 2, 3], 2);
    runs.ran(&["--layout", "packed"], 0);
    for task in ["4", "5"] {
        let ran = Command::new(testing::program())
            .arg("merge")
            .arg(runs.at("batch"))
            .args(["--shard", "auto"])
            .env("SLURM_ARRAY_TASK_ID", task)
            .env("SLURM_ARRAY_TASK_MIN", "4")
            .env("SLURM_ARRAY_TASK_COUNT", "2")
            .output();
        ended(ran.expect("starts"), 0);
    }
    let joined = merge(&runs, &["--join", "2", "--format", "csv"]);
    assert!(joined == merge(&runs, &["--format", "csv"]));
}

#[test]
fn the_cost_of_a_large_plan_is_said_before_it_starts() {
    let steps: Vec<u64> = (0..100).collect();
    let runs = Runs::new(&steps, 300);
    let plan = |more: &[&str]| {
        let output = runs.batch(&[more, &["--plan"]].concat()).output();
        let output = output.expect("starts");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let layout = plan["layout"].as_str().expect("a word").to_owned();
        (layout, text(&output.stderr))
    };
    let (layout, said) = plan(&[]);
    assert_eq!(layout, "directories");
    for words in [
        "10 000 units: 100 checkpoints × 100 chunks of at most 3 prompts",
        "20 000 files in 256 directories, about 79 in each",
        "--layout packed writes 100 files",
        "unknown until units of this batch have run",
    ] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    assert_eq!(plan(&["--quiet"]).1, "");
    // Once units have run, time and bytes are known.
    runs.ran(
        &[
            "--layout",
            "packed",
            "--only-chunks",
            "7",
            "--shard",
            "0/50",
        ],
        0,
    );
    let (layout, said) = plan(&["--layout", "packed"]);
    assert_eq!(layout, "packed");
    assert!(said.contains("measured on 2 units here"), "{said}");
    // Small plans are written as before, and nothing is said.
    let small = Runs::new(&[1], 3);
    let output = small.batch(&["--plan"]).output().expect("starts");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn flags_of_layouts_are_checked() {
    let runs = Runs::new(&[1], 1);
    for more in [["--layout", "other"], ["--slice", "-1"], ["--slice", "x"]] {
        assert_eq!(
            runs.batch(&more).output().expect("starts").status.code(),
            Some(2)
        );
    }
    let batch = runs.at("batch");
    let batch = batch.to_str().expect("a path");
    for more in [["--shard", "2/2"], ["--join", "0"], ["--join", "x"]] {
        let output = attnscope(&[&["merge", batch][..], &more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
}
