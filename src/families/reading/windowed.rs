//! Encoders of pictures whose patches see those of their own window in most layers, with vectors per distance in rows and columns.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{Bias, GridSteps, GridWindow, KeyRank, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec, StepSource, TableSource};

use super::note_bias;

/// The windows of an encoder, and where it keeps vectors per distance.
pub struct Windowed<'a> {
    /// Rows and columns of patches of the picture that it takes.
    pub grid: [usize; 2],
    /// Rows and columns of a window; 0 if there are none.
    pub sides: [usize; 2],
    /// Tokens before the patches, one for each window.
    pub n_first: usize,
    /// The key that says which layers have windows, or which do not.
    pub key: &'static str,
    /// Layers without windows.
    pub whole: &'a dyn Fn(usize) -> bool,
    /// What the name of the map of queries ends in, and the two tables that stand in its place; `None` if distances add nothing.
    pub tables: Option<(&'static str, [&'static str; 2])>,
}

impl Windowed<'_> {
    /// Gives the blocks of an encoder their windows.
    pub fn apply(&self, reader: &mut Reader<'_>, spec: &mut ModelSpec) {
        let [rows, columns] = self.sides;
        let window = (rows * columns > 0).then_some(GridWindow {
            rows,
            columns,
            n_first: self.n_first,
        });
        let blocks = spec.stacks[0].blocks_mut();
        let whole: Vec<usize> = (0..blocks.len()).filter(|idx| (self.whole)(*idx)).collect();
        if window.is_some() && whole.len() < blocks.len() {
            let said = format!("{rows} × {columns} patches, but in layers {whole:?}");
            reader.note("windows", said, Origin::Key(self.key.to_owned()));
        }
        if self.tables.is_some() {
            note_bias(
                reader,
                "learned vectors, by distance in rows and in columns",
            );
        }
        for (layer_idx, block) in blocks.iter_mut().enumerate() {
            let is_whole = whole.contains(&layer_idx);
            self.block(block, window.filter(|_| !is_whole));
        }
    }

    fn block(&self, block: &mut BlockSpec, window: Option<GridWindow>) {
        let Some(own) = block.own_mut() else {
            return;
        };
        let steps = GridSteps {
            grid: self.grid,
            window,
        };
        if window.is_none() && self.tables.is_none() {
            return;
        }
        own.attention.top_keys = window.map(|window| TopKeys {
            n: window.rows * window.columns,
            by: KeyRank::Window(window),
        });
        let has_empty_places = steps.has_empty_places();
        if self.tables.is_none() && !has_empty_places {
            return;
        }
        own.attention.bias = Bias::Steps(steps);
        let n_steps = steps.n_steps();
        let d_head = own.attention.d_head;
        let tables = self.tables.map(|(end, names)| {
            let at = own.projections.q.weight.trim_end_matches(end);
            [0, 1].map(|axis| TableSource {
                tensor: format!("{at}{}", names[axis]),
                n_rows: n_steps[axis],
                width: d_head,
            })
        });
        own.projections.steps = Some(Box::new(StepSource {
            tables,
            has_empty_places,
        }));
    }
}

/// The rows and columns of patches of the pictures that a model takes, all of one size.
///
/// # Errors
/// When a picture has no patch.
pub fn fixed_grid(reader: &Reader<'_>, spec: &ModelSpec) -> Result<[usize; 2]> {
    let pictures = spec.preprocessing();
    let grid = pictures.and_then(|all| {
        let [rows, columns] = all.takes?;
        Some([rows / all.patch[0].max(1), columns / all.patch[1].max(1)])
    });
    grid.filter(|grid| !grid.contains(&0)).ok_or_else(|| {
        let problem = "expected a size that holds at least one patch";
        Error::config(reader.path(), "image_size", problem)
    })
}
