//! log Σ of e^s where a softmax does not run over the keys of a row: the first of its two passes.

/// Sums so far, kept relative to each cell's largest score so that nothing overflows. The cells are keys for a softmax over queries,
/// and pairs of query and key for one over heads.
pub struct LogSumExp {
    max: Vec<f32>,
    sum: Vec<f64>,
}

impl LogSumExp {
    pub fn new(n_cells: usize) -> Self {
        Self {
            max: vec![f32::NEG_INFINITY; n_cells],
            sum: vec![0.0; n_cells],
        }
    }

    /// Adds further scores of all cells; −∞ where a key is not visible.
    pub fn add(&mut self, scores: &[f32]) {
        self.add_from(0, scores);
    }

    /// Adds further scores of the cells from `first` on.
    pub fn add_from(&mut self, first: usize, scores: &[f32]) {
        let cells = self.max[first..].iter_mut().zip(&mut self.sum[first..]);
        for (score, (max, sum)) in scores.iter().zip(cells) {
            if *score == f32::NEG_INFINITY {
                continue;
            }
            if *score > *max {
                *sum *= f64::from(*max - *score).exp();
                *max = *score;
            }
            *sum += f64::from(*score - *max).exp();
        }
    }

    /// log Σ per cell; −∞ for cells that nothing was added to.
    pub fn finish(&self) -> Vec<f32> {
        let pairs = self.max.iter().zip(&self.sum);
        pairs
            .map(|(max, sum)| (f64::from(*max) + sum.ln()) as f32)
            .collect()
    }
}

/// Finished log Σ, as the rows of one head subtract them from their scores.
#[derive(Debug, Clone, Copy)]
pub enum LogSums<'a> {
    /// One row, which all queries share. // [key]
    OverQueries(&'a [f32]),
    /// A row for each query from `first_query` on. // [query, width]
    OverHeads {
        values: &'a [f32],
        width: usize,
        first_query: usize,
    },
}

impl<'a> LogSums<'a> {
    /// What a query's scores are taken relative to; may be longer than its keys.
    pub fn of_row(self, query_idx: usize) -> &'a [f32] {
        match self {
            Self::OverQueries(row) => row,
            Self::OverHeads {
                values,
                width,
                first_query,
            } => &values[(query_idx - first_query) * width..][..width],
        }
    }
}
