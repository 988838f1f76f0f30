//! Checkpoints and traces judged by the library, and what the checks said of them.

#![allow(dead_code, reason = "each test uses a part of this")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnscope::analysis::{self, Declared, Judging, input_of};
use attnscope::checks::{Finding, Severity, Status, Thresholds, Verdict};
use attnscope::model::{Input, Model};
use attnscope::ops::Cpu;
use attnscope::prompt::{self, Request, Target, Tokenizer, read_inputs};
use tempfile::TempDir;

use crate::checkpoint_copy::{Weights, file_of, weights};

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(name)
}

/// Verdicts by check.
#[derive(Debug)]
pub struct Said(pub Vec<(&'static str, Verdict)>);

impl Said {
    pub fn of(&self, check: &str) -> &Verdict {
        let found = self.0.iter().find(|(id, _)| *id == check);
        &found.unwrap_or_else(|| panic!("{check} was not asked")).1
    }

    pub fn status(&self, check: &str) -> Status {
        self.of(check).status
    }

    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter().flat_map(|(_, verdict)| &verdict.findings)
    }

    /// Layer and head of every finding of a check.
    pub fn places(&self, check: &str) -> Vec<(Option<usize>, Option<usize>)> {
        let findings = self.of(check).findings.iter();
        findings
            .map(|finding| (finding.place.layer_idx, finding.place.head_idx))
            .collect()
    }

    /// Every check with findings, and the worst of their severities.
    pub fn fired(&self) -> BTreeMap<&'static str, Severity> {
        let worst = |verdict: &Verdict| verdict.findings.iter().map(|f| f.severity).max();
        let fired = self.0.iter();
        fired
            .filter_map(|(id, verdict)| Some((*id, worst(verdict)?)))
            .collect()
    }

    /// Checks that fired as errors.
    pub fn errors(&self) -> Vec<&'static str> {
        self.with(Severity::Error)
    }

    pub fn with(&self, severity: Severity) -> Vec<&'static str> {
        let fired = self.fired().into_iter();
        fired
            .filter(|(_, worst)| *worst == severity)
            .map(|(id, _)| id)
            .collect()
    }

    /// The one finding of a check.
    pub fn one(&self, check: &str) -> &Finding {
        match self.of(check).findings.as_slice() {
            [one] => one,
            other => panic!("{check}: {other:#?}"),
        }
    }
}

/// A table of thresholds that changes some.
pub fn thresholds(table: &str) -> Thresholds {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("thresholds.toml");
    std::fs::write(&path, table).expect("writes");
    Thresholds::open(&path).expect("a table")
}

/// Judges a checkpoint by some checks; all where none is named.
pub fn judged_by(
    model: &Model,
    prompts: &[(String, Input)],
    thresholds: &Thresholds,
    only: &[&str],
) -> Said {
    let baselines = Default::default();
    let mut judging = Judging {
        baselines: &baselines,
        thresholds,
        wants: &|check| only.is_empty() || only.contains(&check.id),
        told: &mut |_| {},
        pace: &|| false,
    };
    let judgement = analysis::judge(&Cpu, model, prompts, &mut judging).expect("runs");
    let verdicts = judgement.verdicts.into_iter();
    Said(verdicts.map(|(check, said)| (check.id, said)).collect())
}

pub fn judged(model: &Model, prompts: &[(String, Input)]) -> Said {
    judged_by(model, prompts, &Thresholds::default(), &[])
}

/// The prompts of a request.
pub fn prompt_of(model: &Model, request: &Request) -> Vec<(String, Input)> {
    let reading = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let prompt = prompt::prepare(request, &reading, model.spec.limits()).expect("fits");
    vec![("prompt".to_owned(), input_of(&prompt))]
}

pub fn text(model: &Model, text: &str) -> Vec<(String, Input)> {
    prompt_of(model, &Request::text(text))
}

pub fn ids(model: &Model, ids: &[u32]) -> Vec<(String, Input)> {
    prompt_of(model, &Request::ids(ids.to_vec()))
}

/// The stories that the twins were not trained on.
pub fn stories(model: &Model) -> Vec<(String, Input)> {
    let path = fixture("healthy/prompts.jsonl");
    let reading = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let requests = read_inputs(&path, &Request::text("")).expect("a set");
    let of = |(id, request)| {
        let prompt = prompt::prepare(&request, &reading, model.spec.limits()).expect("fits");
        (id, input_of(&prompt))
    };
    requests.into_iter().map(of).collect()
}

/// A copy of the healthy twin with other weights.
pub fn healthy_with(change: impl FnOnce(&mut Weights)) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let to = |name: &str| directory.path().join(name);
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture("healthy").join(name), to(name)).expect("copies");
    }
    let bytes = std::fs::read(fixture("healthy/model.safetensors")).expect("reads");
    let mut all = weights(&bytes);
    change(&mut all);
    std::fs::write(to("model.safetensors"), file_of(&all)).expect("writes");
    directory
}

/// Judges a trace or a probe.
pub fn captured(path: &Path, declared: &Declared) -> Said {
    captured_by(path, declared, &Thresholds::default())
}

pub fn captured_by(path: &Path, declared: &Declared, thresholds: &Thresholds) -> Said {
    let said = analysis::judge_captured(path, declared, thresholds, &|_| true);
    let (verdicts, _) = said.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let verdicts = verdicts.into_iter();
    Said(verdicts.map(|(check, said)| (check.id, said)).collect())
}

/// A reference checkpoint's own prompt, padding left out where that is asked.
pub fn reference_request(case: &Path, with_padding: bool) -> Request {
    let bytes = std::fs::read(case.join("reference.safetensors")).expect("a reference");
    let reference = safetensors::SafeTensors::deserialize(&bytes).expect("a reference");
    let ints = |name: &str| -> Option<Vec<i64>> {
        let tensor = reference.tensor(name).ok()?;
        let values = tensor.data().chunks(8);
        Some(
            values
                .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")))
                .collect(),
        )
    };
    let ids = |name: &str| -> Option<Vec<u32>> {
        Some(ints(name)?.into_iter().map(|id| id as u32).collect())
    };
    let real = ints("attention_mask").map(|mask| mask.into_iter().map(|m| m != 0).collect());
    Request {
        attention_mask: real.filter(|_| with_padding),
        target: match ids("decoder_tokens") {
            Some(ids) => Target::Ids(ids),
            None => Target::Generate(0),
        },
        ..Request::ids(ids("tokens").expect("tokens"))
    }
}

/// Every reference checkpoint.
pub fn references() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture("oracle")).expect("the fixtures");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    cases.sort();
    cases
}
