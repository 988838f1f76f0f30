//! Where checks draw their lines: one table in TOML, which a file of the same form may change.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use attnscope_checkpoint::{CONFIGURATION, read_text};
use attnscope_compute::error::{Error, Result};

/// The table as it is shown, with its sources.
pub const DEFAULTS: &str = include_str!("thresholds.toml");

/// Defines a structure of thresholds for every check, and one of all of them.
macro_rules! thresholds {
    ($($check:ident: $table:ident { $($name:ident),+ })+) => {
        /// Where checks draw their lines: `thresholds.entropy_collapse.relative_entropy`. A file has the same names, with hyphens
        /// in those of checks.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Thresholds {
            $(pub $check: $table,)+
        }

        $(
            #[derive(Debug, Clone, PartialEq)]
            pub struct $table {
                $(pub $name: f64,)+
            }
        )+

        impl Thresholds {
            /// Every number NaN, to be read from the table.
            const UNREAD: Self = Self {
                $($check: $table { $($name: f64::NAN,)+ },)+
            };

            /// Every number, by its name in a file.
            fn places(&mut self) -> Vec<(String, &mut f64)> {
                vec![$($((name_of(stringify!($check), stringify!($name)), &mut self.$check.$name),)+)+]
            }
        }
    };
}

fn name_of(check: &str, name: &str) -> String {
    format!("{}.{name}", check.replace('_', "-"))
}

thresholds! {
    wrong_axis: WrongAxis { column_tolerance }
    mask_mass: MaskMass { error_mass }
    window_width: WindowWidth { error_mass }
    pad_mass: PadMass { error_mass }
    document_leak: DocumentLeak { error_mass }
    pattern_mismatch: PatternMismatch { difference }
    label_shift: LabelShift { margin, fewest_positions }
    trained_otherwise: TrainedOtherwise { margin, label_share, faint_label_share, rival_share, rival_gain, within_family, restored_share, restored_smoothly, fewest_positions, beginning, near_share, fewest_nats }
    knows_nothing: KnowsNothing { fewest_positions }
    untrained_layer: UntrainedLayer { edge_ratio }
    entropy_collapse: EntropyCollapse { relative_entropy, alignment, by_design }
    mask_shape: MaskShape { fewest_rows, narrowest_window }
    order_blind: OrderBlind { share }
    entropy_uniform: EntropyUniform { relative_entropy, score_std }
    score_explosion: ScoreExplosion { max_abs_score, f16_limit }
    softmax_saturation: SoftmaxSaturation { saturated_rows }
    rank_collapse: RankCollapse { resid_spread }
    massive_activation: MassiveActivation { max_abs, times_median }
    dead_head: DeadHead { share_of_median }
    duplicate_heads: DuplicateHeads { divergence, rounding, relative_entropy }
    attention_sink: AttentionSink { mass, massive_heads }
    scale_mismatch: ScaleMismatch { variance_ratio, times_inv_sqrt_d }
    score_scale: ScoreScale { difference }
    regression: Regression { relative, floor }
    spectral_bound: SpectralBound { guaranteed }
    worse_beyond: WorseBeyond { margin }
    foreign_ids: ForeignIds { fewest_ids, share }
}

impl Default for Thresholds {
    fn default() -> Self {
        static READ: LazyLock<Thresholds> = LazyLock::new(|| {
            let mut read = Thresholds::UNREAD;
            for (name, value) in numbers(DEFAULTS).unwrap_or_default() {
                read.set(&name, value);
            }
            read
        });
        READ.clone()
    }
}

impl Thresholds {
    /// The defaults, with what a file changes.
    ///
    /// # Errors
    /// As for [`Thresholds::with_file`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::default().with_file(path)
    }

    /// These, with what a file changes.
    ///
    /// # Errors
    /// When the file cannot be read, is no such table, or has a name that is not known.
    pub fn with_file(mut self, path: &Path) -> Result<Self> {
        let text = read_text(path, CONFIGURATION)?;
        for (name, value) in numbers(&text).map_err(|problem| Error::file(path, problem))? {
            if !self.set(&name, value) {
                let known: Vec<String> = self.names().collect();
                let problem = format!("{name} is not known; known: {}", known.join(", "));
                return Err(Error::file(path, problem));
            }
        }
        Ok(self)
    }

    /// Changes the threshold of a name; returns whether there is one.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        let mut places = self.places().into_iter();
        let place = places.find(|(known, _)| known == name);
        place.map(|(_, place)| *place = value).is_some()
    }

    /// All thresholds by their names in files, sorted.
    pub fn named(&self) -> BTreeMap<String, f64> {
        let mut all = self.clone();
        let places = all.places().into_iter();
        places.map(|(name, value)| (name, *value)).collect()
    }

    /// The names of all thresholds, as files have them.
    pub fn names(&self) -> impl Iterator<Item = String> + use<> {
        self.named().into_keys()
    }
}

fn numbers(text: &str) -> std::result::Result<BTreeMap<String, f64>, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| format!("is not TOML ({})", e.message()))?;
    let mut numbers = BTreeMap::new();
    for (check, values) in &table {
        let toml::Value::Table(values) = values else {
            return Err(format!(
                "{check}: expected a table [{check}], found {}",
                values.type_str()
            ));
        };
        for (name, value) in values {
            let number = match value {
                toml::Value::Float(number) if number.is_finite() => Some(*number),
                toml::Value::Integer(number) => Some(*number as f64),
                _ => None,
            };
            let number = number.ok_or_else(|| {
                format!(
                    "{check}.{name}: expected a number, found {}",
                    value.type_str()
                )
            })?;
            numbers.insert(format!("{check}.{name}"), number);
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_threshold_and_no_other() {
        let read: Vec<String> = numbers(DEFAULTS).expect("a table").into_keys().collect();
        let known: Vec<String> = Thresholds::default().names().collect();
        assert_eq!(read, known);
        let mut all = Thresholds::default();
        assert!(all.places().iter().all(|(_, value)| value.is_finite()));
    }

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("thresholds.toml");
        let open = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            Thresholds::open(&path).map_err(|e| e.to_string())
        };
        let changed = open("[score-explosion]\nmax_abs_score = 50\n").expect("a table");
        assert_eq!(changed.score_explosion.max_abs_score, 50.0);
        let mut back = changed.clone();
        assert!(back.set("score-explosion.max_abs_score", 100.0));
        assert_eq!(back, Thresholds::default());
        for (text, said) in [
            (
                "[score-explosion]\nmax = 5\n",
                "score-explosion.max is not known",
            ),
            (
                "[score-explosion]\nmax_abs_score = \"x\"\n",
                "expected a number",
            ),
            ("max_abs_score = 5\n", "expected a table"),
            ("[score", "is not TOML"),
        ] {
            let error = open(text).expect_err("refused");
            assert!(
                error.contains(said) && error.contains("thresholds.toml"),
                "{error}"
            );
        }
    }
}
