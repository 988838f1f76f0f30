//! The log of a monitor: what is read of it whole, growing, cut, replaced and damaged.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use attnscope_checks::Thresholds;
use attnscope_history::log::{Header, Item, LogReader, Logged, is_monitor_log};
use attnscope_history::{History, Judge, Origin, State, Update};
use tempfile::TempDir;
use testing::made_logs::{Made, read};

const HEADER: &str = r#"{"attnscope":"monitor","version":1,"model":"m","statistics":["entropy_relative","not_yet_known","score_max"],"layers":[{"name":"a","stack":"encoder","layer":0,"n_heads":2},{"name":"b","stack":"cross","layer":0,"n_heads":1}],"rows":8,"every":5}"#;

fn line(step: u64, value: &str) -> String {
    format!(
        "{{\"step\":{step},\"time\":1.5,\"loss\":2.5,\"values\":{{\"entropy_relative\":[[0.5,{value}],[0.25]],\"not_yet_known\":7,\"score_max\":[[1,-2],[3e2]]}}}}\n"
    )
}

struct Log(TempDir);

impl Log {
    fn new(text: &str) -> Self {
        let log = Self(tempfile::tempdir().expect("a directory"));
        fs::write(log.path(), text).expect("writes");
        log
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("run.jsonl")
    }

    fn append(&self, text: &str) {
        let mut file = File::options()
            .append(true)
            .open(self.path())
            .expect("opens");
        file.write_all(text.as_bytes()).expect("writes");
    }
}

fn steps(history: &History) -> Vec<u64> {
    history
        .records()
        .iter()
        .filter_map(|record| record.step)
        .collect()
}

#[test]
fn values_words_stacks_and_unknown_statistics_are_read() {
    let log = Log::new(&format!(
        "{HEADER}\n{}{}",
        line(5, "\"NaN\""),
        line(10, "\"-Infinity\"")
    ));
    assert!(is_monitor_log(&log.path()));
    let history = read(&log.path());
    assert_eq!(steps(&history), [5, 10]);
    assert_eq!(history.sampled_rows, Some(8));
    let cells: Vec<String> = (0..3)
        .map(|cell| history.grid().place(cell).to_string())
        .collect();
    assert_eq!(cells, ["encoder.L0H0", "encoder.L0H1", "cross.L0H0"]);
    assert_eq!(history.at(0, "entropy_relative", 2), 0.25);
    assert!(history.at(0, "entropy_relative", 1).is_nan());
    assert_eq!(history.at(1, "entropy_relative", 1), f64::NEG_INFINITY);
    assert_eq!(history.at(1, "score_max", 2), 300.0);
    assert!(
        history.at(1, "score_min", 2).is_nan(),
        "it is not in the log"
    );
    assert_eq!(history.records()[0].loss(), Some(2.5));
    assert_eq!(history.records()[0].state, State::Done);
    assert!(
        history
            .notes
            .iter()
            .any(|note| note.contains("not_yet_known")),
        "{:?}",
        history.notes
    );
}

#[test]
fn a_line_in_pieces_is_one_record_once_its_end_is_there() {
    let text = format!("{HEADER}\n{}{}", line(5, "0.5"), line(10, "0.4"));
    let log = Log::new("");
    let mut reader = LogReader::new(&log.path());
    let mut history = History::new("run".to_owned(), Origin::Log);
    for (nth, byte) in text.as_bytes().chunks(7).enumerate() {
        log.append(std::str::from_utf8(byte).expect("ASCII"));
        let batch = reader.poll().expect("reads");
        assert_eq!(batch.restarted, None, "piece {nth}");
        assert!(batch.bad.is_empty());
        history.apply(Update::Log(batch));
        let n_lines = text[..(nth * 7 + byte.len())].matches('\n').count();
        assert_eq!(history.records().len(), n_lines.saturating_sub(1));
    }
    let at_once = read(&log.path());
    assert_eq!(
        format!("{:?}", history.records()).replace("\"run\"", "\"made\""),
        format!("{:?}", at_once.records())
    );
    log.append("{\"step\":15,");
    reader.poll().expect("reads");
    assert_eq!(reader.unfinished(), Some(4));
}

#[test]
fn bad_lines_are_named_by_number_and_the_others_are_read() {
    let three_heads = line(15, "0.5,0.5");
    let one_layer = "{\"step\":20,\"values\":{\"score_max\":[[1,2]]}}\n";
    let wrong_word = line(25, "\"nan\"");
    let log = Log::new(&format!(
        "{HEADER}\n{}not JSON\n{three_heads}{one_layer}{wrong_word}{{\"values\":{{}}}}\n\n{}",
        line(5, "0.5"),
        line(30, "null")
    ));
    let mut reader = LogReader::new(&log.path());
    let batch = reader.poll().expect("reads");
    let items: Vec<u64> = batch
        .items
        .iter()
        .map(|item| match item {
            Item::Record(Logged { step, .. }) => *step,
            Item::Segment(_) => panic!("no segment"),
        })
        .collect();
    assert_eq!(items, [5, 30]);
    let said: Vec<(u64, &str)> = batch
        .bad
        .iter()
        .map(|bad| (bad.number, bad.problem.as_str()))
        .collect();
    let expected = [
        (3, "no JSON"),
        (
            4,
            "entropy_relative of encoder.L0: expected 2 heads, found 3",
        ),
        (5, "score_max: expected 2 layers, found 1"),
        (6, "\"nan\""),
        (7, "expected a step"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for ((number, problem), (expected_number, part)) in said.iter().zip(expected) {
        assert!(
            *number == expected_number && problem.contains(part),
            "{number}: {problem}"
        );
    }
}

#[test]
fn a_first_line_that_is_no_header_is_one_error() {
    for (text, said) in [
        (
            "loss 2.5\nloss 2.4\n",
            "expected the first line of a monitor log",
        ),
        ("{\"loss\":2.5}\n", "found JSON without that key"),
        (
            "{\"attnscope\":\"trace\",\"version\":1}\n",
            "found a file of kind \"trace\"",
        ),
        (
            "{\"attnscope\":\"monitor\",\"version\":2}\n",
            "expected version 1, found 2",
        ),
        ("{\"attnscope\":\"monitor\",\"version\":1}\n", "line 1"),
        (
            &HEADER.replace("\"cross\"", "\"sideways\""),
            "found \"sideways\"",
        ),
        (
            &HEADER
                .replace("entropy_relative", "x")
                .replace("score_max", "y"),
            "none of its statistics",
        ),
        (
            &HEADER.replace("\"cross\"", "\"encoder\""),
            "encoder.L0 is listed twice",
        ),
        (
            &HEADER.replace("\"n_heads\":2", "\"n_heads\":18446744073709551615"),
            "expected layers with heads",
        ),
    ] {
        let log = Log::new(&format!("{}\n", text.trim_end()));
        let error = LogReader::new(&log.path())
            .poll()
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains(said) && error.contains("run.jsonl"),
            "{error}"
        );
    }
    let unfinished = Log::new("not the beginning of anything");
    assert!(LogReader::new(&unfinished.path()).poll().is_err());
}

#[test]
fn a_restart_replaces_what_was_recorded_from_its_step_on() {
    let record = |steps: &[u64], value: &str| {
        steps
            .iter()
            .map(|step| line(*step, value))
            .collect::<String>()
    };
    let log = Log::new(&format!(
        "{HEADER}\n{}{{\"segment\":1}}\n{}",
        record(&[5, 10, 15, 20], "0.5"),
        record(&[15], "0.75")
    ));
    let history = read(&log.path());
    assert_eq!(
        steps(&history),
        [5, 10, 15],
        "20 is of the training that was given up"
    );
    assert_eq!(history.at(2, "entropy_relative", 1), 0.75);
    log.append(&record(&[20, 25, 10], "0.25"));
    let history = read(&log.path());
    assert_eq!(
        steps(&history),
        [5, 10, 15, 20, 25],
        "a later line of an earlier step"
    );
    assert_eq!(history.at(1, "entropy_relative", 1), 0.25);
    // A monitor that begins again writes its header again.
    log.append(&format!("{HEADER}\n{}", record(&[10], "0.125")));
    assert_eq!(steps(&read(&log.path())), [5, 10]);
}

/// A segment of one statistic and some layers of two heads, with a value for all of them.
fn segment(
    statistic: &str,
    layers: &[usize],
    n_heads: usize,
    steps: &[u64],
    value: &str,
) -> String {
    let of = |what: &dyn Fn(&usize) -> String| {
        let all: Vec<String> = layers.iter().map(what).collect();
        all.join(",")
    };
    let described = of(&|layer| {
        format!("{{\"name\":\"l\",\"stack\":null,\"layer\":{layer},\"n_heads\":{n_heads}}}")
    });
    let heads = vec![value; n_heads].join(",");
    let values = of(&|_| format!("[{heads}]"));
    let head = format!(
        "\"model\":\"m\",\"statistics\":[\"{statistic}\"],\"layers\":[{described}],\"rows\":8,\"every\":5"
    );
    let records = steps.iter().map(|step| {
        format!("{{\"step\":{step},\"loss\":2,\"values\":{{\"{statistic}\":[{values}]}}}}\n")
    });
    let begins = match steps.first() {
        Some(0) => format!("{{\"attnscope\":\"monitor\",\"version\":1,{head}}}\n"),
        _ => format!("{{\"segment\":{{\"step\":1,{head}}}}}\n"),
    };
    begins + &records.collect::<String>()
}

#[test]
fn a_restart_may_record_other_statistics_and_other_layers() {
    let log = Log::new(&segment(
        "entropy_relative",
        &[0, 1],
        2,
        &[0, 5, 10, 15],
        "0.5",
    ));
    // It is read in pieces, as it grows.
    let mut reader = LogReader::new(&log.path());
    let mut history = History::new("run".to_owned(), Origin::Log);
    history.apply(Update::Log(reader.poll().expect("reads")));
    log.append(&segment("max_abs_score", &[1, 2], 2, &[10, 12], "3"));
    history.apply(Update::Log(reader.poll().expect("reads")));
    log.append(&segment("entropy_relative", &[0, 1], 2, &[20], "0.25"));
    history.apply(Update::Log(reader.poll().expect("reads")));
    assert_eq!(history.notes, [""; 0]);
    assert_eq!(steps(&history), [0, 5, 10, 12, 20]);
    assert_eq!(
        (history.grid().n_heads(), history.grid().layers().len()),
        (6, 3)
    );
    let at = |record_idx, statistic, cell| history.at(record_idx, statistic, cell);
    assert_eq!([0, 3].map(|cell| at(1, "entropy_relative", cell)), [0.5; 2]);
    assert_eq!([2, 5].map(|cell| at(2, "max_abs_score", cell)), [3.0; 2]);
    assert_eq!(at(4, "entropy_relative", 3), 0.25);
    let column = history.column("max_abs_score").expect("a column");
    assert_eq!(history.known(0, column, 2), None);
    assert_eq!(history.known(3, column, 0), None, "layer 0 was not seen");
    let whole = read(&log.path());
    assert_eq!(history.grid(), whole.grid());
    assert_eq!(
        format!("{:?}", history.records()[3].numbers),
        format!("{:?}", whole.records()[3].numbers),
        "in pieces or at once"
    );
    // What is not recorded is not broken.
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    assert_eq!(judge.findings(), []);
    log.append("{\"step\":25,\"values\":{\"entropy_relative\":[[0.5,\"NaN\"],[0.5,null]]}}\n");
    judge.look(&read(&log.path()));
    let found: Vec<(&str, String)> = judge
        .findings()
        .iter()
        .map(|finding| (finding.check, finding.place.to_string()))
        .collect();
    assert_eq!(found, [("nan-or-inf", "L0H1".to_owned())]);
}

#[test]
fn another_model_in_one_log_leaves_out_the_first() {
    let log = Log::new(&segment("entropy_relative", &[0, 1], 2, &[0, 5, 10], "0.5"));
    log.append(&segment("entropy_relative", &[0, 1], 3, &[20, 25], "0.75"));
    let history = read(&log.path());
    assert_eq!(steps(&history), [20, 25]);
    assert_eq!(history.grid().n_heads(), 6);
    let said = "another model from step 20 on: 2 layers, 6 heads, not 2 layers, 4 heads";
    assert!(history.notes[0].contains(said), "{:?}", history.notes);
}

#[test]
fn a_log_that_is_cut_short_replaced_or_written_anew_is_read_from_its_beginning() {
    let whole = |steps: std::ops::Range<u64>| {
        let lines: String = steps.map(|step| line(step, "0.5")).collect();
        format!("{HEADER}\n{lines}")
    };
    type Change = (&'static str, fn(&Path, &str));
    let changes: [Change; 4] = [
        ("cut short", |path, text| {
            fs::write(path, text).expect("writes")
        }),
        ("replaced", |path, text| {
            let other = path.with_extension("other");
            fs::write(&other, text).expect("writes");
            fs::rename(other, path).expect("renames");
        }),
        ("rotated", |path, text| {
            fs::rename(path, path.with_extension("1")).expect("renames");
            fs::write(path, text).expect("writes");
        }),
        ("removed and made again", |path, text| {
            fs::remove_file(path).expect("removes");
            fs::write(path, text).expect("writes");
        }),
    ];
    for (what, change) in changes {
        let log = Log::new(&whole(0..20));
        let mut reader = LogReader::new(&log.path());
        let mut history = History::new("run".to_owned(), Origin::Log);
        history.apply(Update::Log(reader.poll().expect("reads")));
        assert_eq!(steps(&history).len(), 20);
        change(&log.path(), &whole(100..103));
        history.apply(Update::Log(reader.poll().expect("reads")));
        assert_eq!(steps(&history), [100, 101, 102], "{what}");
        log.append(&line(103, "0.5"));
        history.apply(Update::Log(reader.poll().expect("reads")));
        assert_eq!(steps(&history).last(), Some(&103), "{what}");
    }
    // Written anew, and longer than it was before anybody looked.
    let log = Log::new(&whole(0..3));
    let mut reader = LogReader::new(&log.path());
    reader.poll().expect("reads");
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(log.path(), whole(50..60)).expect("writes");
    let batch = reader.poll().expect("reads");
    assert!(batch.restarted.is_some() && batch.header.is_some() && batch.items.len() == 10);
}

#[test]
fn a_large_log_is_read_whole_in_blocks() {
    let made = Made {
        n_records: 40,
        n_layers: 24,
        n_heads: 64,
        ..Made::default()
    };
    let (header, lines) = (made.header(), made.lines());
    let log = Log::new(&header);
    let mut file = fs::File::options()
        .append(true)
        .open(log.path())
        .expect("opens");
    let mut n = 0u64;
    // More than one block of 32 MiB.
    while n < 600 {
        let line = &lines[n as usize % lines.len()];
        let end = line.find(',').expect("a record");
        writeln!(file, "{{\"step\":{n}{}", line[end..].trim_end()).expect("writes");
        n += 1;
    }
    assert!(log.path().metadata().expect("a file").len() > 33 << 20);
    let history = read(&log.path());
    assert!(history.notes.is_empty(), "{:?}", history.notes.first());
    assert_eq!(steps(&history), (0..n).collect::<Vec<_>>());
    let known = Header::read(header.trim_end().as_bytes()).expect("a header");
    assert_eq!(history.grid(), &known.grid);
    assert!(
        history
            .series("entropy_relative", 77)
            .iter()
            .all(|value| value.is_finite())
    );
}
