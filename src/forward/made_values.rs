//! Values that a small network makes of distances in rows and in columns of a picture.

use attnscope_compute::error::Result;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::MadeValues;

use super::weights::WeightReader;

impl<O: Ops> WeightReader<'_, O> {
    /// Runs the network on all pairs of distances. // [step in rows, step in columns, head]
    pub(super) fn made_values(self, network: &MadeValues) -> Result<Vec<f32>> {
        let ops = self.ops;
        let [rows, columns] = [0, 1].map(|axis| read_distances(network, axis));
        let both = rows
            .iter()
            .flat_map(|row| columns.iter().flat_map(move |column| [*row, *column]));
        let both: Vec<f32> = both.collect();
        let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
        ops.put(&both, 2, &mut from)?;
        ops.linear(&from, &self.linear(&network.up)?, &mut to, self.pace)?; // [pair of distances, hidden]
        ops.activate(Activation::Relu, &mut to)?;
        ops.linear(&to, &self.linear(&network.down)?, &mut from, self.pace)?; // [pair of distances, head]
        let made = ops.get(&from)?.values.into_owned();
        let limited = made.iter().map(|x| network.most / (1.0 + (-x).exp()));
        Ok(limited.collect())
    }
}

/// The distances along an axis as the network reads them: the farthest key behind first, on a logarithmic scale.
fn read_distances(network: &MadeValues, axis: usize) -> Vec<f32> {
    let n = network.n_steps[axis];
    let own = (n / 2) as f32;
    let farthest = network.farthest.max(1) as f32;
    let read = |step: usize| {
        let share = 8.0 * (step as f32 - own) / farthest;
        share.signum() * (share.abs() + 1.0).log2() / 3.0
    };
    // signum of 0 is 1, and its logarithm 0.
    (0..n).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::LinearSource;

    #[test]
    fn the_farthest_distance_is_read_as_a_bit_more_than_one() {
        let map = || LinearSource::whole("map.weight".to_owned(), None, 2, 2);
        let network = MadeValues {
            up: map(),
            down: map(),
            n_steps: [3, 1],
            farthest: 1,
            most: 16.0,
        };
        let far = 9f32.log2() / 3.0;
        assert_eq!(read_distances(&network, 0), [-far, 0.0, far]);
        assert_eq!(read_distances(&network, 1), [0.0]);
    }
}
