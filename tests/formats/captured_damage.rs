//! Traces and probes that are broken: refused in one line that names the file, or judged; never a panic.

use attnscope_checks::Status;
use attnscope_run::Declared;
use serde_json::{Value, json};
use testing::checkpoint_copy::{Stored, Weights, attnscope, put_together, take_apart, text};
use testing::effort::tries;
use testing::judged::fixture;
use testing::trace_files::{Written, arrays, npz};

/// One line on standard error that names the file, exit code 2.
fn refused(file: &Written, flags: &[&str], parts: &[&str]) {
    let path = file.1.to_str().expect("a path");
    let output = attnscope(&[&["check", path], flags].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{parts:?}: {error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    let name = file
        .1
        .file_name()
        .expect("a name")
        .to_str()
        .expect("a name");
    for part in parts.iter().chain([&name]) {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn files_that_do_not_fit_together_are_refused_in_one_line() {
    let own = || arrays("correct.safetensors");
    let with = |name: &str, stored: Stored| {
        let mut all = own();
        all.insert(name.to_owned(), stored);
        Written::bare(&all)
    };
    let pattern = "blocks.0.attn.pattern";
    refused(
        &with(pattern, Stored::f32(&[2, 6, 24], &[0.1; 288])),
        &[],
        &["blocks.0.attn", "expected shape"],
    );
    refused(
        &with(pattern, Stored::f32(&[288], &[0.1; 288])),
        &[],
        &[pattern, "expected [head, query, key]"],
    );
    refused(
        &with(pattern, Stored::f32(&[2, 0, 12], &[])),
        &[],
        &[pattern, "at least one"],
    );
    refused(
        &with(pattern, Stored::f32(&[0, 2, 12, 12], &[])),
        &[],
        &[pattern],
    );
    let whole = Stored {
        dtype: "I64".to_owned(),
        shape: vec![2, 12, 12],
        bytes: vec![0; 2304],
    };
    refused(&with(pattern, whole), &[], &[pattern, "floating point"]);
    refused(
        &with("tokens", Stored::f32(&[2], &[0.5, 1.0])),
        &[],
        &["tokens"],
    );
    refused(
        &Written::bare(&own()),
        &["--attention-mask", "1,1,0"],
        &["attention mask", "3 values"],
    );
    for (key, value) in [
        ("attnscope.mask", "sideways"),
        ("attnscope.window", "0"),
        ("attnscope.window", "-3"),
        ("attnscope.documents", "0,x"),
    ] {
        refused(
            &Written::with_metadata(&own(), &json!({ key: value })),
            &[],
            &[key, value],
        );
    }
    let q = Weights::from([(
        "blocks.0.attn.q".to_owned(),
        Stored::f32(&[2, 4, 8], &[0.5; 64]),
    )]);
    refused(&Written::bare(&q), &[], &["holds no pattern"]);
    let zipped = npz(&own());
    refused(
        &Written::bytes("short.npz", &zipped[..zipped.len() / 2]),
        &[],
        &["npz"],
    );
    refused(&Written::bytes("empty.npz", b""), &[], &["npz"]);
}

#[test]
fn a_probe_whose_arrays_do_not_fit_is_refused_in_one_line() {
    let bytes = std::fs::read(fixture("captured/probe_correct.safetensors")).expect("reads");
    let (header, data) = take_apart(&bytes);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut header = header.clone();
        change(&mut header);
        Written::bytes("probe.safetensors", &put_together(&header, &data))
    };
    refused(
        &with(&|h| h["__metadata__"]["attnscope.modules"] = json!("[\"one\"]")),
        &[],
        &["attnscope.modules"],
    );
    refused(
        &with(&|h| h["__metadata__"]["attnscope.modules"] = json!("{")),
        &[],
        &["JSON"],
    );
    refused(
        &with(&|h| h["probe.future.influence"]["shape"] = json!([12, 8])),
        &[],
        &["cuts"],
    );
    refused(
        &with(&|h| h["probe.batch.moved"]["shape"] = json!([27])),
        &[],
        &["probe.batch.moved"],
    );
    let lost = |h: &mut Value| {
        h.as_object_mut()
            .expect("an object")
            .remove("probe.batch.size");
    };
    let file = with(&lost);
    let path = file.1.to_str().expect("a path");
    assert_eq!(attnscope(&["check", path]).status.code(), Some(2));
}

#[test]
fn a_nan_in_a_trace_is_a_finding_with_its_first_place() {
    for (name, kind) in [
        ("blocks.1.attn.scores", "score"),
        ("blocks.1.attn.pattern", "pattern"),
    ] {
        let mut all = arrays("correct.safetensors");
        let stored = all.get_mut(name).expect("an array");
        let mut values = stored.values();
        values[144 + 5 * 12 + 3] = f32::NAN;
        *stored = Stored::f32(&[2, 12, 12], &values);
        let said = Written::bare(&all).said();
        assert!(said.errors().contains(&"nan-or-inf"), "{:?}", said.fired());
        let finding = said.one("nan-or-inf");
        assert_eq!(finding.place.to_string(), "L1H1 query 5 key 3");
        assert!(finding.evidence.contains(kind), "{finding:?}");
    }
    // Nothing but NaN, and nothing but zeros, are judged as well.
    for value in [f32::NAN, f32::INFINITY, 0.0, -1.0] {
        let mut all = arrays("correct.safetensors");
        for stored in all.values_mut().filter(|stored| stored.dtype == "F32") {
            *stored = Stored::f32(&stored.shape.clone(), &[value; 288]);
        }
        let said = Written::bare(&all).said();
        assert!(!said.fired().is_empty(), "{value}");
    }
}

#[test]
fn changed_bytes_never_end_in_a_panic() {
    let mut random = fastrand::Rng::with_seed(4);
    let files = [
        "correct.safetensors",
        "pattern_only.npz",
        "probe_wrong_axis.safetensors",
        "encoder_decoder.safetensors",
    ];
    for name in files {
        let bytes = std::fs::read(fixture("captured").join(name)).expect("reads");
        for _ in 0..tries(80, 3) {
            let mut changed = bytes.clone();
            // Headers are where structure is; so most changes fall there.
            let most = if random.bool() {
                changed.len()
            } else {
                changed.len().min(1500)
            };
            for _ in 0..random.usize(1..6) {
                changed[random.usize(..most)] = random.u8(..);
            }
            if random.u8(..4) == 0 {
                changed.truncate(random.usize(..changed.len()));
            }
            let file = Written::bytes(name, &changed);
            let judge = || {
                attnscope_run::judge_captured(
                    &file.1,
                    &Declared::default(),
                    &Default::default(),
                    &|_| true,
                )
            };
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
            if let Err(problem) = ended.unwrap_or_else(|_| panic!("{name}: {changed:?}")) {
                let line = problem.to_string();
                assert!(line.contains(name), "{line}");
            }
        }
    }
}

#[test]
fn what_another_check_explains_is_not_called_sound() {
    for (name, by) in [("wrong_axis", "wrong-axis"), ("dropout_left_on", "row-sum")] {
        let file = Written::bare(&arrays(&format!("{name}.safetensors")));
        let said = file.said();
        assert!(said.fired().contains_key(by), "{name}: {:?}", said.fired());
        let mismatch = said.of("pattern-mismatch");
        assert_eq!(mismatch.status, Status::NotApplicable, "{name}");
        assert!(mismatch.why.contains(by), "{}", mismatch.why);
    }
}
