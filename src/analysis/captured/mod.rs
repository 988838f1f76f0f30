//! Attention that somebody else's code computed: what a trace holds, made into the same layer reports as our own runs.

mod arrays;
mod declared;
mod layers;
mod names;
mod probe;
mod summary;

use std::path::Path;
use std::sync::Arc;

pub use declared::{Declared, Mask as DeclaredMask};

use self::layers::layer_reports;
use crate::checkpoint::captured::{Captured, holds};
use crate::checks::{self, Check, Evidence, Place, Probes, Subject, Thresholds, Verdict};
use crate::error::Result;
use crate::stats::LayerReport;

/// A trace, read.
#[derive(Debug, Clone)]
pub struct Trace {
    pub layers: Vec<Arc<LayerReport>>,
    pub tokens: Vec<u64>,
    /// How the mask is known, in words.
    pub mask_origin: String,
    /// Where it came from, as it says itself.
    pub source: Option<String>,
    pub first_nonfinite: Option<(Place, String)>,
    pub row_tolerance: f64,
    /// What it lacks, in words.
    pub lacks: Option<String>,
}

/// Whether a path holds captured attention or a probe: a safetensors file with such a name in it, or an `.npz`.
pub fn is_captured(path: &Path) -> bool {
    holds(path, |name| {
        names::parse(name).is_some() || probe::is_part(name)
    })
}

/// Judges a trace or a probe.
///
/// # Errors
/// When the file cannot be read, or its arrays do not fit together.
pub fn judge_captured(
    path: &Path,
    declared: &Declared,
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Result<(Vec<(&'static Check, Verdict)>, String)> {
    let captured = Captured::open(path)?;
    if captured.names().into_iter().any(probe::is_part) {
        let probes = probe::read(&captured)?;
        let evidence = Evidence {
            subject: Subject::Probe,
            layers: &[],
            row_tolerance: 0.0,
            first_nonfinite: None,
            narrow_dtype: None,
            lacks: Some("a probe holds what moved, and no attention".to_owned()),
            probes: &probes,
        };
        let source = captured.metadata.get("attnscope.source");
        let about = source.map_or("a probe".to_owned(), |source| {
            format!("a probe of {source}")
        });
        return Ok((judged(&evidence, thresholds, wants), about));
    }
    let trace = read_trace(&captured, declared)?;
    let probes = Probes::none(
        "a trace holds one run: a probe of the model tells (attnscope capture-script)",
    );
    let evidence = Evidence {
        subject: Subject::Trace,
        layers: &trace.layers,
        row_tolerance: trace.row_tolerance,
        first_nonfinite: trace.first_nonfinite.clone(),
        narrow_dtype: None,
        lacks: trace.lacks.clone(),
        probes: &probes,
    };
    let about = match &trace.source {
        Some(source) => format!("a trace of {source}; {}", trace.mask_origin),
        None => format!("a trace; {}", trace.mask_origin),
    };
    Ok((judged(&evidence, thresholds, wants), about))
}

fn judged(
    evidence: &Evidence<'_>,
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Vec<(&'static Check, Verdict)> {
    let mut verdicts = checks::judge(evidence, thresholds);
    verdicts.retain(|(check, _)| wants(check));
    verdicts
}

/// Reads a trace into layer reports.
///
/// # Errors
/// When it holds no attention, or its arrays do not fit together.
pub fn read_trace(captured: &Captured, declared: &Declared) -> Result<Trace> {
    layer_reports(captured, declared)
}
