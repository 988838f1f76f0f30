//! Runs the check `trained-otherwise` on a guess: whether the weights explain the texts better under a reading that no
//! description can express, such as a softmax over queries or visible labels.

use std::sync::Arc;

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::{Evidence, Probed, Probes, Severity, Subject, Thresholds};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_families::description::Described;
use attnscope_forward::{Input, Sequence};
use attnscope_run::readings::Lines;
use attnscope_run::{Budget, probe_readings};
use attnscope_spec::Model;

const CHECK: &str = "trained-otherwise";

/// Longer texts are cut to this number of tokens.
const LONGEST: usize = 512;

/// The check's finding in one sentence; `None` if it finds nothing or cannot decide.
///
/// # Errors
/// When the model cannot run, or the work is stopped.
pub fn otherwise<O: Ops>(
    ops: &O,
    checkpoint: &Arc<Checkpoint>,
    described: &Described,
    sequences: &[Vec<u32>],
    pace: &dyn Pace,
) -> Result<Option<String>> {
    let model = Model {
        checkpoint: checkpoint.clone(),
        spec: described
            .spec(&checkpoint.tensors)
            .map_err(Error::Setting)?,
    };
    let longest = model.spec.n_ctx.unwrap_or(LONGEST).min(LONGEST);
    let input = |ids: &Vec<u32>| {
        let tokens = ids[..ids.len().min(longest)].to_vec();
        Input {
            source: None,
            sequence: Sequence {
                positions: (0..tokens.len()).collect(),
                tokens,
                real: None,
                picture: None,
                ..Sequence::default()
            },
        }
    };
    let inputs: Vec<Input> = sequences.iter().map(input).collect();
    let thresholds = Thresholds::default();
    let lines = Lines::of(&thresholds);
    let mut probes = Probes::none("a guess is asked one question");
    probes.training = probe_readings(
        ops,
        &model,
        &inputs,
        (lines, Budget::USUAL),
        &mut |_, _| {},
        pace,
    )?;
    if matches!(probes.training, Probed::Not(_)) {
        return Ok(None);
    }
    let evidence = Evidence::of_layers(Subject::Checkpoint, &[], &probes, 0.0);
    let verdicts = attnscope_checks::judge(&evidence, &thresholds);
    let found = verdicts.into_iter().find(|(check, _)| check.id == CHECK);
    let mut findings = found.map_or_else(Vec::new, |(_, verdict)| verdict.findings);
    // Informational findings do not contradict the description.
    findings.retain(|finding| finding.severity > Severity::Info);
    let finding = findings.into_iter().next();
    Ok(finding.map(|finding| finding.evidence))
}
