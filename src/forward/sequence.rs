//! Input tokens of a model.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::attention::{
    AttentionSpec, Globals, GridTurn, KeyRank, PickedKeys, RopeSpec, Visibility,
};
use attnscope_prompt::{Firsts, Picture, Sound};
use attnscope_spec::{KeyGrid, ModelSpec, ProjectionSpec, StackSpec};

/// One sequence of input tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    /// Position of each token, by the model's position rule.
    pub positions: Vec<usize>,
    /// Which tokens are real; `None` when all are.
    pub real: Option<Vec<bool>>,
    /// The image whose patches are the tokens, for vision models.
    pub picture: Option<Arc<Picture>>,
    /// The audio of a speech model; tokens are then only indices of its rows.
    pub sound: Option<Arc<Sound>>,
}

impl Sequence {
    /// Creates a sequence from the tokens of a text, without padding.
    pub fn of_text(tokens: Vec<u32>, positions: Vec<usize>) -> Self {
        Self {
            tokens,
            positions,
            ..Self::default()
        }
    }

    /// Returns the tokens of a layer: those of the prompt in the first stage, the patches that were merged of them in later ones, and
    /// learned rows that joined them.
    pub fn of_layer(&self, stack: &StackSpec, layer_idx: usize) -> Cow<'_, Self> {
        let n_joined = stack.n_joined(layer_idx);
        match (stack.merged_before(layer_idx), self.picture.as_deref()) {
            (Some(merge), Some(picture)) => {
                let grid = stack.grid_of(layer_idx, picture.grid());
                let firsts = Firsts::of_stage(merge.has_class(), n_joined);
                Cow::Owned(Self::of_patches(picture, grid, firsts))
            }
            (_, picture) if n_joined > 0 => {
                let joined = picture.map(|picture| picture.clone().joined_by(n_joined));
                let real = self.real.as_ref().map(|real| {
                    let firsts = std::iter::repeat_n(true, n_joined);
                    firsts.chain(real.iter().copied()).collect()
                });
                let all = Self::of_rows(self.len() + n_joined, joined);
                if all.picture.is_some() {
                    return Cow::Owned(all);
                }
                // Ids of learned rows are those of no token.
                let ids = (0..n_joined as u32).map(|nth| u32::MAX - nth);
                Cow::Owned(Self {
                    tokens: ids.chain(self.tokens.iter().copied()).collect(),
                    real,
                    ..all
                })
            }
            (Some(_), None) => self.halved_to(stack.n_shortened(layer_idx, self.len())),
            _ => Cow::Borrowed(self),
        }
    }

    /// Returns the rows of a stack's output: those of the prompt, or what its last stage made of them.
    pub fn of_output(&self, stack: &StackSpec) -> Cow<'_, Self> {
        let after = stack.n_layers();
        match stack.merged_before(after) {
            Some(_) => self.of_layer(stack, after),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns the positions that are left when pairs are merged repeatedly, until there are `n`. A pair that holds padding is padding.
    fn halved_to(&self, n: usize) -> Cow<'_, Self> {
        if self.len() <= n {
            return Cow::Borrowed(self);
        }
        let mut real = self.real.clone();
        let mut len = self.len();
        while len > n {
            len /= 2;
            let pairs =
                |real: Vec<bool>| real.chunks_exact(2).map(|two| two[0] && two[1]).collect();
            real = real.map(pairs);
        }
        Cow::Owned(Self {
            tokens: self.tokens[..len].to_vec(),
            positions: self.positions[..len].to_vec(),
            real,
            picture: None,
            sound: self.sound.clone(),
        })
    }

    /// Returns the tokens of the keys of an attention to the sequence itself: the same, the patches of another grid, or those of the
    /// encoder before them.
    pub fn keys_of(&self, maps: &ProjectionSpec, source: Option<&Self>) -> Cow<'_, Self> {
        let key_grid = maps.key_grid.as_deref();
        if let (Some(_), Some(source)) = (key_grid.and_then(KeyGrid::of_both), source) {
            return Cow::Owned(source.before(self));
        }
        if let Some(pooled) = key_grid.and_then(KeyGrid::pooled) {
            return Cow::Owned(self.with_pools(pooled.size));
        }
        match (maps.key_grid.as_deref(), self.picture.as_deref()) {
            (Some(key_grid), Some(picture)) => {
                let grid = key_grid.to(picture.grid());
                Cow::Owned(Self::of_patches(picture, grid, picture.firsts))
            }
            _ => Cow::Borrowed(self),
        }
    }

    /// The tokens of this sequence, and behind them its whole pools of `size` tokens, whose ids are those of no token. Pools of padding are
    /// padding.
    fn with_pools(&self, size: usize) -> Self {
        let size = size.max(1);
        let n_pools = self.len() / size;
        let ids = (0..n_pools as u32).map(|nth| u32::MAX - nth);
        let pools = self.positions.chunks_exact(size);
        let real = self.real.as_ref().map(|real| {
            let pools = real.chunks_exact(size);
            let of_pools = pools.map(|pool| pool.contains(&true));
            real.iter().copied().chain(of_pools).collect()
        });
        Self {
            tokens: self.tokens.iter().copied().chain(ids).collect(),
            positions: {
                let firsts = pools.map(|pool| pool[0]);
                self.positions.iter().copied().chain(firsts).collect()
            },
            real,
            ..Self::default()
        }
    }

    /// The tokens of this sequence and those of another one behind them.
    fn before(&self, other: &Self) -> Self {
        let both = [self, other];
        let is_padded = both.iter().any(|one| one.real.is_some());
        let real = both
            .iter()
            .flat_map(|one| (0..one.len()).map(|at| one.is_real(at)));
        Self {
            tokens: [&self.tokens[..], &other.tokens[..]].concat(),
            positions: [&self.positions[..], &other.positions[..]].concat(),
            real: is_padded.then(|| real.collect()),
            ..Self::default()
        }
    }

    /// The patches of a picture that were merged to a grid, behind learned tokens.
    fn of_patches(picture: &Picture, grid: [usize; 2], firsts: Firsts) -> Self {
        let n = firsts.len() + grid[0] * grid[1];
        Self::of_rows(n, Some(picture.merged_to(grid, firsts)))
    }

    /// Rows that are no tokens of a text.
    fn of_rows(n: usize, picture: Option<Picture>) -> Self {
        Self {
            tokens: (0..n as u32).collect(),
            positions: (0..n).collect(),
            picture: picture.map(Arc::new),
            ..Self::default()
        }
    }

    /// Returns the grid of the patches of its picture, if it has one.
    pub fn grid(&self) -> Option<[usize; 2]> {
        self.picture.as_ref().map(|picture| picture.grid())
    }

    /// Returns which tokens see each other in self-attention.
    pub fn visibility(&self, spec: &AttentionSpec) -> Visibility {
        let visibility = Visibility::of_self(spec.mask, self.len(), self.real.as_deref());
        let visibility = match spec.globals {
            Some(globals) => visibility.with_global(self.global(globals)),
            None => visibility,
        };
        self.in_windows(spec, visibility)
    }

    /// Lets each query keep the keys of its own window, if there are windows of the patches of this sequence, which are the keys.
    pub fn in_windows(&self, spec: &AttentionSpec, visibility: Visibility) -> Visibility {
        let picked = match spec.top_keys.map(|top| top.by) {
            Some(KeyRank::Window(window)) => {
                let picture = self.picture.as_deref();
                let n_columns = picture.map_or(self.len(), |picture| picture.grid()[1]);
                let of = (&visibility, spec.n_heads);
                Some(PickedKeys::of_windows(window, n_columns, of))
            }
            Some(KeyRank::Scores | KeyRank::Indexer(_) | KeyRank::Pools) | None => None,
        };
        visibility.with_picked(picked)
    }

    /// Returns the rotary embedding, by the grid of the picture if it is that of a picture.
    pub(super) fn turning<'a>(&self, rope: &'a RopeSpec) -> Cow<'a, RopeSpec> {
        match (rope.grid, self.picture.as_deref()) {
            (Some(turn), Some(picture)) if turn.grid.is_none() => Cow::Owned(RopeSpec {
                grid: Some(GridTurn {
                    grid: Some(picture.grid()),
                    ..turn
                }),
                ..rope.clone()
            }),
            _ => Cow::Borrowed(rope),
        }
    }

    /// Returns which tokens are global; padding never is.
    pub(super) fn global(&self, globals: Globals) -> Vec<bool> {
        let among = globals.among(&self.tokens).into_iter().enumerate();
        among.map(|(idx, is)| is && self.is_real(idx)).collect()
    }

    /// Returns the first `n` tokens.
    pub fn first(&self, n: usize) -> Self {
        self.part(0..n.min(self.len()))
    }

    /// Returns a range of its tokens.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self {
            tokens: self.tokens[range.clone()].to_vec(),
            positions: self.positions[range.clone()].to_vec(),
            real: self.real.as_ref().map(|real| real[range].to_vec()),
            picture: self.picture.clone(),
            sound: self.sound.clone(),
        }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether a token is real, not padding. Positions without a token of their own are real.
    pub fn is_real(&self, position_idx: usize) -> bool {
        let real = self.real.as_ref().and_then(|real| real.get(position_idx));
        real != Some(&false)
    }
}

/// Complete input of a model: its tokens, and those of its encoder if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Input {
    /// The encoder's tokens.
    pub source: Option<Sequence>,
    /// The tokens of the only stack, or of the decoder.
    pub sequence: Sequence,
}

impl Input {
    /// Returns the rows of the encoder's output, which cross-attention sees; `None` without an encoder.
    pub fn encoded(&self, spec: &ModelSpec) -> Option<Cow<'_, Sequence>> {
        let encoder = spec.stacks.first()?;
        Some(self.source.as_ref()?.of_output(encoder))
    }
}
