//! The view to start with, in place of pressing keys.

use attnscope_compute::error::{Error, Result};
use attnscope_run::Subject;
use attnscope_spec::{Grid, Place, Stack};

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
    /// Show numbers instead of maps in the Overview.
    pub shows_numbers: bool,
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
            shows_numbers: false,
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
                let has = match labels.as_slice() {
                    [] => "one stack, which needs no name".to_owned(),
                    labels => format!("the stacks {}", labels.join(", ")),
                };
                let asked = grid.label().unwrap_or_default();
                return Err(Error::Prompt(format!(
                    "there is no {asked}: the model has {has}"
                )));
            }
        };
        let place = Place {
            stack: self.stack,
            layer_idx: Some(self.layer_idx.unwrap_or(0)),
            head_idx: self.head_idx,
            ..Place::MODEL
        };
        // Without a stack, the place is one of the first grid.
        let shape = subject.shape();
        let of_grid: Vec<Grid> = shape.into_iter().filter(|of| of.stack == grid).collect();
        place.within(&of_grid).map_err(Error::Prompt)?;
        Ok(grid)
    }
}

impl Shown {
    /// The heads to mark, each of which the model has.
    ///
    /// # Errors
    /// When there is no such head.
    pub(crate) fn marked_in(&self, subject: &Subject) -> Result<Vec<Place>> {
        let shape = subject.shape();
        let mut heads = Vec::new();
        for place in &self.marked {
            (place.within(&shape))
                .map_err(|problem| Error::Prompt(format!("--mark: {problem}")))?;
            let layer = Place::layer(place.grid(), place.layer_idx.unwrap_or(0));
            let n_heads = subject.n_heads(place.grid(), place.layer_idx.unwrap_or(0));
            match place.head_idx {
                Some(head_idx) => heads.push(layer.head(head_idx)),
                None => heads.extend((0..n_heads).map(|head_idx| layer.head(head_idx))),
            }
        }
        Ok(heads)
    }
}

/// Checks that an index of a query or a key is below their number.
pub fn within((one, several): (&str, &str), idx: Option<usize>, n: usize) -> Result<Option<usize>> {
    match idx {
        Some(idx) if idx >= n => Err(Error::Prompt(format!(
            "there is no {one} {idx}: the text has {several} 0–{}",
            n.saturating_sub(1)
        ))),
        idx => Ok(idx),
    }
}
