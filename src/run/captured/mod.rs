//! Attention computed by other code: turns a trace into the layer reports that our own runs produce.

mod arrays;
mod calls;
mod cosines;
mod declared;
mod dialects;
mod head;
mod heads;
mod hearing;
mod layers;
mod layout;
mod mask_lengths;
mod names;
mod own_names;
mod padding;
mod probe;
mod randomness;
mod recorded;
mod scales;
mod shapes;
mod summary;
mod unaudited;

use std::path::Path;
use std::sync::Arc;

pub use arrays::{MASKED, coarsest_dtype};
pub use declared::{Declared, Mask as DeclaredMask, real_tokens, stated_axes, token_ids};
pub use dialects::{about as about_dump, is_dump, open};
pub use head::captured_head;
pub use heads::Heads;
pub use layout::{Axes, Layout};
pub use names::{Layer, Name};
pub use randomness::Randomness;
pub use recorded::{Recorded, renumbered};
pub use unaudited::{Unaudited, is_shown_otherwise};

pub(super) use arrays::{F32_TOLERANCE, first_nonfinite};
pub(super) use head::whole_head;
pub(super) use probe::read as read_probes;

use self::unaudited::Audits;
use attnscope_checkpoint::captured::{Captured, holds};
use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Check, Discarded, Evidence, Probes, Subject, Thresholds, Verdict};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::{Place, Stack};

/// A trace whose arrays have been read.
#[derive(Debug, Clone)]
pub struct Trace {
    pub layers: Vec<Arc<LayerReport>>,
    /// Names of the arrays that each layer was read from.
    pub arrays: Vec<ArrayNames>,
    pub tokens: Vec<u32>,
    /// Decoder tokens, in traces of encoder-decoder models.
    pub decoder_tokens: Vec<u32>,
    /// How the mask was determined, in words.
    pub mask_origin: String,
    /// Origin that the trace states.
    pub source: Option<String>,
    pub first_nonfinite: Option<(Place, String)>,
    /// Why the model does not look trained, if the capturing code found so.
    pub untrained: Option<String>,
    /// Layers whose results the code throws away; `None` where no code was watched.
    pub discarded: Option<Vec<Discarded>>,
    /// Masks that the call left out, in words, where most heads see later positions.
    pub absent_masks: Option<String>,
    pub row_tolerance: f64,
    /// Missing arrays, in words.
    pub lacks: Option<String>,
}

/// Names of a layer's arrays in the trace file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrayNames {
    pub pattern: Option<String>,
    pub scores: Option<String>,
    /// Order of the arrays' axes.
    pub axes: Axes,
}

/// Whether a path holds a probe.
pub fn is_probe(path: &Path) -> bool {
    holds(path, probe::is_part) && path.extension().is_none_or(|ending| ending != "npz")
}

/// Whether a path holds captured attention or a probe: a file with a matching array name, an `.npz`, or a dump of an engine.
pub fn is_captured(path: &Path) -> bool {
    let is_known = |name: &str| attention_name(name).is_some() || probe::is_part(name);
    is_dump(path) || holds(path, is_known) || own_names::states_attention(path)
}

/// Parses a name of what a trace is judged by; `None` for the hooks that are only compared.
fn attention_name(name: &str) -> Option<Name> {
    Name::parse(name).filter(|name| match name.hook {
        // A cross-attention's residual is that of the decoder layer, halfway.
        Hook::ResidPost => name.stack != Stack::Cross,
        Hook::ResidPre | Hook::Z | Hook::AttnOut | Hook::MlpOut => false,
        _ => true,
    })
}

/// Reads a trace or a probe and runs the checks that `wants` selects.
///
/// # Errors
/// When the file cannot be read, or its arrays contradict each other.
pub fn judge_captured(
    path: &Path,
    declared: &Declared,
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Result<(Vec<(&'static Check, Verdict)>, String)> {
    let captured = open(path)?;
    if captured.names().into_iter().any(probe::is_part) {
        let probes = probe::read(&captured)?;
        let evidence = Evidence {
            lacks: Some("a probe holds what moved, and no attention".to_owned()),
            ..Evidence::of_layers(Subject::Probe, &[], &probes, 0.0)
        };
        let source = captured.metadata.get("attnscope.source");
        let about = source.map_or("a probe".to_owned(), |source| {
            format!("a probe of {source}")
        });
        return Ok((judged(&evidence, thresholds, wants), about));
    }
    let trace = read_trace(&captured, declared)?;
    let mut about = match &trace.source {
        _ if let Some(dump) = about_dump(&captured) => format!("{dump}; {}", trace.mask_origin),
        Some(source) => format!("a trace of {source}; {}", trace.mask_origin),
        None => format!("a trace; {}", trace.mask_origin),
    };
    if let Some(words) = Randomness::of(&captured).words() {
        about = format!("{about}; {words}");
    }
    let mut verdicts = judge_trace(&trace, &trace.layers, thresholds);
    verdicts.retain(|(check, _)| wants(check));
    Ok((verdicts, about))
}

/// Runs every check on a trace; `layers` may be renumbered.
pub fn judge_trace(
    trace: &Trace,
    layers: &[Arc<LayerReport>],
    thresholds: &Thresholds,
) -> Vec<(&'static Check, Verdict)> {
    let why = "a trace holds one run: test the model with a probe (attnscope capture-script)";
    judge_probed(trace, layers, &Probes::none(why), thresholds)
}

/// Runs every check on a trace, and on what probes of the same model saw.
pub(super) fn judge_probed(
    trace: &Trace,
    layers: &[Arc<LayerReport>],
    probes: &Probes,
    thresholds: &Thresholds,
) -> Vec<(&'static Check, Verdict)> {
    let evidence = Evidence {
        first_nonfinite: trace.first_nonfinite.clone(),
        untrained: trace.untrained.as_deref(),
        discarded: trace.discarded.as_deref(),
        lacks: trace.lacks.clone(),
        ..Evidence::of_layers(Subject::Trace, layers, probes, trace.row_tolerance)
    };
    let mut verdicts = attnscope_checks::judge(&evidence, thresholds);
    name_modules(layers, &mut verdicts);
    verdicts
}

/// Adds the module's name to each finding, for layers that have names instead of numbers.
fn name_modules(layers: &[Arc<LayerReport>], verdicts: &mut [(&'static Check, Verdict)]) {
    let name_of = |place: &Place| {
        let layer = layers.iter().find(|layer| {
            layer.stack == place.grid() && Some(layer.layer_idx) == place.layer_idx
        })?;
        layer.name.clone()
    };
    let findings = verdicts
        .iter_mut()
        .flat_map(|(_, verdict)| &mut verdict.findings);
    for finding in findings {
        // The finding of the first NaN already contains its module's name.
        if let Some(name) = name_of(&finding.place).filter(|name| !finding.evidence.contains(name))
        {
            finding.evidence = format!("{name}: {}", finding.evidence);
        }
    }
}

fn judged(
    evidence: &Evidence<'_>,
    thresholds: &Thresholds,
    wants: &dyn Fn(&Check) -> bool,
) -> Vec<(&'static Check, Verdict)> {
    let mut verdicts = attnscope_checks::judge(evidence, thresholds);
    verdicts.retain(|(check, _)| wants(check));
    verdicts
}

/// Reads a trace into layer reports.
///
/// # Errors
/// When it holds no attention, or its arrays contradict each other.
pub fn read_trace(captured: &Captured, declared: &Declared) -> Result<Trace> {
    Ok(layers::read(captured, declared, Audits::AtOnce)?.trace)
}

/// Reads a trace into layer reports, and leaves its audits for later.
///
/// # Errors
/// As for [`read_trace`].
pub fn read_unaudited(captured: &Captured, declared: &Declared) -> Result<Unaudited> {
    layers::read(captured, declared, Audits::Later)
}
