//! Whether the output of a probed model is finite, and whether it hears what modules inside hear.

use attnscope_checkpoint::captured::Captured;
use attnscope_checks::{ContextProbe, Movement, NonfiniteModule, OrderProbe, Probed, Probes};
use attnscope_compute::error::Result;
use attnscope_spec::Place;

use super::probe::{Reader, json};

/// A module hears the tokens before the last position if it moves by more than this share of its largest value: as in probing.py.
const HEARD: f64 = 1e-4;
const NOT_FINITE: &str = "the output is not finite";

/// Takes back what was compared with an output that is not finite: a NaN is never larger than a tolerance, so that nothing would
/// seem to move.
pub(super) fn undecide_all(probes: &mut Probes, captured: &Captured) {
    undecide(&mut probes.future);
    if captured.contains("probe.order.moved") {
        probes.order = Probed::Undecided(NOT_FINITE.to_owned());
        probes.context = Probed::Undecided(NOT_FINITE.to_owned());
    }
    undecide(&mut probes.labels);
    for probe in [
        &mut probes.padding,
        &mut probes.batch,
        &mut probes.documents,
        &mut probes.repeat,
        &mut probes.length,
        &mut probes.cache,
    ] {
        undecide(probe);
    }
}

/// Takes back the result of a probe that compared NaN or infinity.
fn undecide<T>(probe: &mut Probed<T>) {
    if matches!(probe, Probed::Ran(_)) {
        *probe = Probed::Undecided(NOT_FINITE.to_owned());
    }
}

/// Path of a module without the number of its run.
fn path_of(name: &str) -> &str {
    name.rsplit_once('#').map_or(name, |(path, _)| path)
}

fn is_inside(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.starts_with('.'))
}

impl Reader<'_> {
    /// How the output answers to other tokens; `None` if the probe tried no others.
    pub fn context(&self, order: Option<&OrderProbe>) -> Result<Option<Probed<ContextProbe>>> {
        let said = |key: &str| self.captured.metadata.get(key);
        let is_true = |key: &str| said(key).is_some_and(|text| text == "true");
        let is_deaf = is_true("attnscope.deaf");
        let is_source_blind = is_true("attnscope.source_blind");
        let name = "probe.order.content";
        let mut heard: Vec<(&String, f64)> = Vec::new();
        if is_deaf && self.captured.contains(name) {
            let contents = self.captured.array(name)?.values;
            let sizes = self.captured.array("probe.order.size")?.values;
            let moved = self.modules.iter().zip(contents.iter().zip(&sizes));
            heard = moved
                .map(|(module, (moved, size))| {
                    let (moved, size) = (f64::from(*moved), f64::from(*size));
                    (module, if size > 0.0 { moved / size } else { moved })
                })
                .filter(|(_, amount)| *amount > HEARD)
                .collect();
        }
        if is_deaf {
            let mixer = said("attnscope.mixer").map(|mixer| (mixer, 0.0));
            let first = heard.first().copied().or(mixer);
            return Ok(Some(Probed::Ran(ContextProbe {
                is_deaf,
                is_source_blind,
                first: first.map(|(module, amount)| Movement {
                    place: Place::MODEL,
                    name: Some(module.clone()),
                    amount,
                }),
                lost_in: self.lost_in(&heard),
                untrained: said("attnscope.untrained")
                    .or_else(|| {
                        said("attnscope.labels.skipped").filter(|why| why.contains("not trained"))
                    })
                    .cloned(),
            })));
        }
        if is_source_blind {
            return Ok(Some(Probed::Ran(ContextProbe {
                is_deaf,
                is_source_blind,
                first: None,
                lost_in: None,
                untrained: said("attnscope.untrained").cloned(),
            })));
        }
        Ok(order.map(|order| {
            if order.output.by_content <= order.resolution.max(order.tolerance) {
                let why =
                    "the last position of the output does not move when earlier tokens are others";
                return Probed::Undecided(why.to_owned());
            }
            Probed::Ran(ContextProbe {
                is_deaf,
                is_source_blind,
                first: None,
                lost_in: None,
                untrained: None,
            })
        }))
    }

    /// The numbered layer of the first module that moved, if all modules that moved are inside layers that did not.
    fn lost_in(&self, heard: &[(&String, f64)]) -> Option<String> {
        let is_still = |path: &str| heard.iter().all(|(other, _)| path_of(other) != path);
        let is_numbered = |path: &str| path.split('.').any(|part| part.parse::<usize>().is_ok());
        let layer_of = |module: &str| {
            let paths = self.modules.iter().map(|layer| path_of(layer));
            let mut layers = paths.filter(|path| is_inside(path_of(module), path));
            layers.find(|path| is_numbered(path) && is_still(path))
        };
        let layers: Option<Vec<&str>> = heard.iter().map(|(module, _)| layer_of(module)).collect();
        layers?.first().map(|layer| (*layer).to_owned())
    }

    /// The first module that gives NaN or infinity on the unchanged prompt.
    pub fn nonfinite(&self) -> Result<Option<NonfiniteModule>> {
        let names = json(self.captured, "attnscope.nonfinite")?.unwrap_or_default();
        let output = self.modules.get(self.output_idx());
        Ok(names.first().map(|name| NonfiniteModule {
            name: name.clone(),
            n_modules: names.len(),
            reaches_output: output.is_none_or(|output| names.contains(output)),
        }))
    }
}
