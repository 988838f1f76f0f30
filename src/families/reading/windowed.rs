//! Encoders of pictures whose patches see those of their own window in most layers, with vectors per distance in rows and columns.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Bias, GridSteps, GridWindow, KeyRank, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec, PairValues, SelfSpec, StepSource, TableSource};

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

/// What distances in rows and columns add to scores. What the name of the map of queries ends in is followed by what stands in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distances {
    Nothing,
    /// Products of the query with learned vectors: tables by distance in rows and in columns.
    Vectors(&'static str, [&'static str; 2]),
    /// A learned value by head and both distances.
    Values(&'static str, &'static str),
}

impl Windowed<'_> {
    /// Gives the blocks of an encoder their windows.
    pub fn apply(&self, reader: &mut Reader<'_>, spec: &mut ModelSpec) {
        let [rows, columns] = self.sides;
        let window = (rows * columns > 0).then_some(GridWindow {
            n_first: self.n_first,
            ..GridWindow::plain([rows, columns])
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
            let steps = GridSteps {
                grid: self.grid,
                window: window.filter(|_| !is_whole),
            };
            let tables = self.tables;
            let distances = tables.map_or(Distances::Nothing, |(end, names)| {
                Distances::Vectors(end, names)
            });
            see_windows(block, steps, distances);
        }
    }
}

/// What the frames of a still video mean for layers that attend along time.
pub const ALIKE: &str = "heads over time see frames that are alike but for their positions, so that even attention there is not judged";

/// Lets patches see those of their own window, of which there are at most `n`.
pub fn see_window(own: &mut SelfSpec, window: GridWindow, n: usize) {
    own.attention.top_keys = Some(TopKeys {
        n,
        by: KeyRank::Window(window),
    });
}

/// Lets the patches of a block see their own window, if there are windows, and adds what distances do.
pub fn see_windows(block: &mut BlockSpec, steps: GridSteps, distances: Distances) {
    let Some(own) = block.own_mut() else {
        return;
    };
    if let Some(window) = steps.window {
        see_window(own, window, window.rows * window.columns);
    }
    let has_empty_places = steps.has_empty_places();
    if distances == Distances::Nothing && !has_empty_places {
        return;
    }
    own.attention.bias = Bias::Steps(steps);
    let [n_rows, n_columns] = steps.n_steps();
    let AttentionSpec {
        d_head, n_heads, ..
    } = own.attention;
    let query = &own.projections.q.weight;
    let table = |end: &str, name: &str, n_rows: usize, width: usize| TableSource {
        tensor: format!("{}{name}", query.trim_end_matches(end)),
        n_rows,
        width,
    };
    let mut source = StepSource {
        has_empty_places,
        ..StepSource::default()
    };
    match distances {
        Distances::Nothing => {}
        Distances::Vectors(end, [of_rows, of_columns]) => {
            source.tables = Some([
                table(end, of_rows, n_rows, d_head),
                table(end, of_columns, n_columns, d_head),
            ]);
        }
        Distances::Values(end, name) => {
            let values = table(end, name, n_rows * n_columns, n_heads);
            source.pairs = Some(PairValues::Stored(values));
        }
    }
    own.projections.steps = Some(Box::new(source));
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
