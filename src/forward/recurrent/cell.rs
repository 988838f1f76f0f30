//! One LSTM layer in one direction, step by step (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000).

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_spec::recurrent::CellSpec;

use crate::weights::WeightReader;

/// Weights and current state of a layer.
pub(super) struct Cell<'a, O: Ops> {
    ops: &'a O,
    pace: &'a dyn Pace,
    input: O::Linear<'a>,
    hidden: O::Linear<'a>,
    state: O::Buffer,
    gates: O::Buffer,
    /// Hidden state and cell state of the last step. // [width]
    pub h: Vec<f32>,
    pub c: Vec<f32>,
}

impl<'a, O: Ops> Cell<'a, O> {
    /// Reads a cell with zero state; `of_inputs` reads the map of inputs, which come all at once or a step at a time.
    ///
    /// # Errors
    /// When a tensor is missing, has the wrong shape, or the device refuses it.
    pub fn read(
        shelf: WeightReader<'a, O>,
        of_inputs: WeightReader<'a, O>,
        spec: &CellSpec,
    ) -> Result<Self> {
        Ok(Self {
            ops: shelf.ops,
            pace: shelf.pace,
            input: of_inputs.linear(&spec.input)?,
            hidden: shelf.by_row().linear(&spec.hidden)?,
            state: O::Buffer::default(),
            gates: O::Buffer::default(),
            h: vec![0.0; spec.width()],
            c: vec![0.0; spec.width()],
        })
    }

    /// Computes the inputs' share of the gates. // from: [position, n_in] → [position, 4 · width]
    ///
    /// # Errors
    /// When the device fails, or the pace stops it; also for the functions below.
    pub fn read_inputs(&self, from: &O::Buffer) -> Result<Vec<f32>> {
        let mut gates = O::Buffer::default();
        self.ops.linear(from, &self.input, &mut gates, self.pace)?;
        Ok(self.ops.get(&gates)?.values.into_owned())
    }

    /// Runs one step. // from_input: [4 · width]
    pub fn step(&mut self, from_input: &[f32]) -> Result<()> {
        let width = self.h.len();
        self.ops.put(&self.h, width, &mut self.state)?;
        self.ops
            .linear(&self.state, &self.hidden, &mut self.gates, self.pace)?; // [1, 4 · width]
        let from_state = self.ops.get(&self.gates)?.values;
        let gate = |nth: usize, unit: usize| {
            let at = nth * width + unit;
            from_input[at] + from_state[at]
        };
        for unit in 0..width {
            let (i, f) = (sigmoid(gate(0, unit)), sigmoid(gate(1, unit)));
            let (g, o) = (gate(2, unit).tanh(), sigmoid(gate(3, unit)));
            self.c[unit] = f * self.c[unit] + i * g;
            self.h[unit] = o * self.c[unit].tanh();
        }
        Ok(())
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
