//! Tests the engine's public interface as another program uses it.

use std::path::PathBuf;

use attnscope_engine::{ErrorKind, Session, Severity, Stack};

const TEXT: &str = "one cold morning the old king gave a red apple . one cold morning the old king";

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures")).join(name)
}

#[test]
fn a_checkpoint_is_opened_run_looked_at_and_judged() {
    let model = Session::new().open(fixture("induction")).expect("opens");
    let run = model.run(TEXT).expect("runs");
    let head = run.head(1, 3).expect("a head");
    assert_eq!(head.n_queries, run.tokens().len());
    assert_eq!(head.pattern.len(), head.n_queries * head.n_keys);
    for (query_idx, row) in head.pattern.chunks(head.n_keys).enumerate() {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(row[query_idx + 1..].iter().all(|p| *p == 0.0));
    }
    let loss = run.loss().expect("a language model");
    assert!(loss > 0.0 && loss < 64f64.ln(), "{loss}");
    let entropy = run.statistic("entropy", 1, 3).expect("a statistic");
    assert!(entropy > 0.0 && entropy < (head.n_keys as f64).ln());
    let judgement = run.judge().expect("judged");
    let errors = judgement
        .findings()
        .filter(|finding| finding.severity == Severity::Error);
    assert_eq!(errors.count(), 0);
    assert!(judgement.checks().any(|(id, ..)| id == "future-leak"));
}

#[test]
fn a_translator_writes_its_target_and_has_cross_attention() {
    let model = Session::new()
        .open(fixture("seq2seq/scaled"))
        .expect("opens");
    let run = model.run("drei").expect("runs");
    assert!(run.tokens().len() > 1);
    let head = run.head_of(Stack::Cross, 0, 0).expect("cross-attention");
    assert_eq!(head.n_queries, run.tokens().len());
}

#[test]
fn two_sessions_of_one_process_judge_by_their_own_thresholds() {
    let fires = |session: Session| {
        let model = session.open(fixture("induction")).expect("opens");
        let judgement = model.run(TEXT).expect("runs").judge().expect("judged");
        judgement.findings().any(|f| f.check == "score-explosion")
    };
    let strict = Session::new()
        .with_threshold("score-explosion.max_abs_score", 1e-3)
        .expect("a threshold");
    assert!(!fires(Session::new()));
    assert!(fires(strict));
    assert!(!fires(Session::new()));
}

#[test]
fn errors_have_a_kind_and_name_what_they_are_about() {
    let missing = Session::new().open(fixture("nothing")).map(|_| ());
    let missing = missing.expect_err("no such file");
    assert_eq!(missing.kind(), ErrorKind::File);
    assert!(missing.to_string().contains("nothing"), "{missing}");
    let unknown = Session::new().with_threshold("score-explosion.none", 1.0);
    assert_eq!(
        unknown.expect_err("no such threshold").kind(),
        ErrorKind::Setting
    );
    let model = Session::new().open(fixture("induction")).expect("opens");
    let empty = model.run_tokens(&[]).map(|_| ()).expect_err("no tokens");
    assert_eq!(empty.kind(), ErrorKind::Prompt);
    let run = model.run(TEXT).expect("runs");
    for (layer, head, what) in [(9, 0, "no layer 9"), (0, 9, "heads")] {
        let error = run.head(layer, head).expect_err("no such head");
        assert_eq!(error.kind(), ErrorKind::Setting);
        assert!(error.to_string().contains(what), "{error}");
    }
}
