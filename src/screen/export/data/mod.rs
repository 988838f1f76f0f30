//! The data of each panel as a table: one file and one entry of `PANELS` per panel.

mod checks;
mod compare;
mod effect;
mod head;
mod history;
mod model;
mod overview;
mod rows;
mod scores;
mod sheet;
mod story;
mod sweep;
mod tokens;

use serde::{Serialize, Serializer};

pub use self::sheet::Sheet;
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use attnscope_report::Number;

/// A column of a table.
pub struct Column {
    pub name: &'static str,
    /// Empty if it has none.
    pub unit: &'static str,
    pub about: &'static str,
}

/// The exported data of a panel: kinds of rows, columns, and the table itself.
pub struct PanelData {
    pub panel: Panel,
    /// Values of the `part` column, each with a description of such rows.
    pub parts: &'static [(&'static str, &'static str)],
    pub columns: &'static [Column],
    pub sheet: fn(Scene<'_>) -> Result<Sheet, sheet::Wrong>,
}

/// The data of every panel, in the order of the panels.
pub static PANELS: &[&PanelData] = &[
    &overview::DATA,
    &head::DATA,
    &scores::DATA,
    &tokens::DATA,
    &model::DATA,
    &checks::DATA,
    &compare::DATA,
    &history::DATA,
    &rows::DATA,
    &effect::DATA,
    &sweep::DATA,
    &story::DATA,
];

/// The exported data of a panel.
pub fn of(panel: Panel) -> &'static PanelData {
    let found = PANELS.iter().find(|data| data.panel == panel);
    // A test checks that every panel is in the list.
    found.copied().unwrap_or(PANELS[0])
}

const fn column(name: &'static str, unit: &'static str, about: &'static str) -> Column {
    Column { name, unit, about }
}

/// Columns that several panels share.
const PART: Column = column("part", "", "what kind of row it is");
const STACK: Column = column("stack", "", "which stack the layer belongs to");
const LAYER: Column = column("layer", "", "the layer");
const HEAD: Column = column("head", "", "the head");

/// A number written with all its digits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    Single(f32),
    Double(f64),
}

impl From<f32> for Figure {
    fn from(value: f32) -> Self {
        Self::Single(value)
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            // The shortest digits that read back as the same f32.
            Self::Single(value) if value.is_finite() => to.serialize_f32(value),
            Self::Single(value) => Number(f64::from(value)).serialize(to),
            Self::Double(value) => Number(value).serialize(to),
        }
    }
}

/// The value of the `stack` column.
fn stack_label(app: Scene<'_>) -> &'static str {
    app.selection.stack.label().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::app::App;
    use attnscope_terminal::theme::{Depth, Theme};

    #[test]
    fn every_panel_has_data_and_describes_its_columns() {
        let app = App::new(Theme::new(Depth::None), (80, 24), "a model".to_owned());
        let panels: Vec<Panel> = PANELS.iter().map(|data| data.panel).collect();
        assert_eq!(panels, Panel::ALL);
        for data in PANELS {
            let sheet = (data.sheet)(app.scene()).expect("a table");
            let names: Vec<&str> = data.columns.iter().map(|column| column.name).collect();
            assert_eq!(sheet.columns, names, "{:?}", data.panel);
            assert!(sheet.rows.is_empty(), "{:?}", data.panel);
            assert_eq!(names[0], "part");
            assert!(data.columns.iter().all(|column| !column.about.is_empty()));
            assert!(!data.parts.is_empty());
        }
    }

    #[test]
    fn numbers_read_back_exactly() {
        #[derive(Serialize, Default)]
        struct Row {
            part: &'static str,
            value: Option<Figure>,
        }
        let values: [Figure; 7] = [
            0.1f32.into(),
            (1.0f32 / 3.0).into(),
            0.1f64.into(),
            1e-300f64.into(),
            f32::NEG_INFINITY.into(),
            f64::NAN.into(),
            (-0.0f64).into(),
        ];
        let rows = values.map(|value| Row {
            part: "a",
            value: Some(value),
        });
        let rows = rows.into_iter().chain([Row::default()]);
        let sheet = Sheet::of(rows).expect("a table");
        let cells: Vec<&str> = sheet.rows.iter().map(|row| row[1].as_str()).collect();
        let expected = [
            "0.1",
            "0.33333334",
            "0.1",
            "1e-300",
            "-Infinity",
            "NaN",
            "-0.0",
            "",
        ];
        assert_eq!(cells, expected);
    }
}
