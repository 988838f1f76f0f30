//! The view to start with, in place of pressing keys.

use attnscope_compute::error::{Error, Result};
use attnscope_run::Subject;
use attnscope_spec::{Place, Stack};

use super::panel::Panel;
use super::views::HeadView;

/// The view to start with. Omitted parts keep their defaults.
#[derive(Debug, Clone)]
pub struct Shown {
    pub panel: Panel,
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
    pub head_idx: Option<usize>,
    pub query_idx: Option<usize>,
    pub key_idx: Option<usize>,
    pub statistic_idx: usize,
    pub head_view: HeadView,
    /// Shade tokens by the attention that the selected key receives.
    pub shows_received: bool,
    /// Probe the model (run it on changed prompts).
    pub is_probed: bool,
    /// The check whose line is selected.
    pub check: Option<&'static str>,
    /// Heads to mark, which Compare shows side by side; a layer stands for all of its heads.
    pub marked: Vec<Place>,
}

impl Shown {
    /// A panel with its defaults.
    pub fn of(panel: Panel) -> Self {
        Self {
            panel,
            stack: None,
            layer_idx: None,
            head_idx: None,
            query_idx: None,
            key_idx: None,
            statistic_idx: 0,
            head_view: HeadView::default(),
            shows_received: false,
            is_probed: false,
            check: None,
            marked: Vec::new(),
        }
    }

    /// The requested grid, if the model has it.
    pub(crate) fn grid_in(&self, subject: &Subject) -> Result<Stack> {
        let grids = subject.grids();
        let grid = match self.stack {
            None => grids[0],
            Some(grid) if grids.contains(&grid) => grid,
            Some(grid) => {
                let labels: Vec<&str> = grids.iter().filter_map(|grid| grid.label()).collect();
                let expected = match labels.as_slice() {
                    [] => "found a model of one stack, which needs none".to_owned(),
                    labels => format!("expected one of {}", labels.join(", ")),
                };
                let asked = grid.label().unwrap_or_default();
                return Err(Error::Prompt(format!("--stack {asked}: {expected}")));
            }
        };
        let layer_idx = within("--layer", self.layer_idx, subject.n_layers(grid))?.unwrap_or(0);
        within("--head", self.head_idx, subject.n_heads(grid, layer_idx))?;
        Ok(grid)
    }
}

impl Shown {
    /// The heads to mark, each of which the model has.
    ///
    /// # Errors
    /// When there is no such head.
    pub(crate) fn marked_in(&self, subject: &Subject) -> Result<Vec<Place>> {
        let mut heads = Vec::new();
        for place in &self.marked {
            let (grid, layer_idx) = (place.grid(), place.layer_idx.unwrap_or(0));
            let n_heads = if subject.grids().contains(&grid) && layer_idx < subject.n_layers(grid) {
                subject.n_heads(grid, layer_idx)
            } else {
                0
            };
            let layer = Place::layer(grid, layer_idx);
            match place.head_idx {
                Some(head_idx) if head_idx < n_heads => heads.push(layer.head(head_idx)),
                None if n_heads > 0 => heads.extend((0..n_heads).map(|idx| layer.head(idx))),
                _ => {
                    let said = format!("--mark {place}: there is no such head");
                    return Err(Error::Prompt(said));
                }
            }
        }
        Ok(heads)
    }
}

/// Checks that an index is below `n`.
pub fn within(flag: &str, idx: Option<usize>, n: usize) -> Result<Option<usize>> {
    match idx {
        Some(idx) if idx >= n => Err(Error::Prompt(format!(
            "{flag} {idx}: expected 0 to {}",
            n.saturating_sub(1)
        ))),
        idx => Ok(idx),
    }
}
