//! Time and size of finished units: what a plan's cost is estimated from.

use std::path::Path;

use attnscope_report::UnitRecord;

use super::pack;
use super::parts::Parts;

/// Units that are measured, about.
const N_MEASURED: usize = 200;

/// Time and size of some units.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    pub n_units: usize,
    /// Seconds of all of them.
    pub seconds: f64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Measured {
    fn add(&mut self, records: &[UnitRecord], bytes: u64) {
        self.n_units += records.len();
        self.seconds += records.iter().map(|record| record.seconds).sum::<f64>();
        self.bytes += bytes;
    }
}

impl Parts {
    /// Measures some finished units; `None` if there are none.
    pub fn measured(&self) -> Option<Measured> {
        let contents = self.contents().ok()?;
        let mut measured = Measured::default();
        let every = contents.own.len().div_ceil(N_MEASURED).max(1);
        for (id, layout) in contents.own.iter().step_by(every) {
            let (record, rows) = self.own_files(id, *layout);
            let bytes = |path: &Path| path.metadata().map_or(0, |of| of.len());
            if let Ok((of, _)) = self.own(id, *layout) {
                measured.add(&[of], bytes(&record) + bytes(&rows));
            }
        }
        let packs = contents.keys.iter().flat_map(|key| self.packs_of_key(key));
        for path in packs.take(N_MEASURED / 10) {
            for block in pack::read(&path).ok()?.0 {
                measured.add(&block.records, block.bytes);
            }
        }
        (measured.n_units > 0).then_some(measured)
    }
}
