//! The data of each panel as a table: one file and one entry of `PANELS` per panel.

/// Defines the rows of a panel that begin with their kind and a place in the model.
macro_rules! placed_row {
    ($($columns:tt)*) => {
        attnscope_report::table_row! {
            struct Row {
                part: &'static str, "", "kind of row";
                stack: &'static str, "", "which stack the layer belongs to";
                layer: Option<usize>, "", "the layer";
                head: Option<usize>, "", "the head; empty for what is not a head's";
                $($columns)*
            }
        }

        impl Row {
            /// A row at a place, with nothing else in it.
            fn at(place: attnscope_spec::Place) -> Self {
                Self {
                    stack: place.grid().label().unwrap_or_default(),
                    layer: place.layer_idx,
                    head: place.head_idx,
                    ..Self::default()
                }
            }
        }
    };
}

mod checks;
mod compare;
mod effect;
mod head;
mod history;
mod model;
mod overview;
mod prompts;
mod rows;
mod scores;
mod story;
mod sweep;
mod tokens;

use attnscope_report::table::{Cell, CellValue, Column, Kind, Table};
use attnscope_spec::Place;

use crate::state::panel::Panel;
use crate::state::scene::Scene;

/// The exported data of a panel: kinds of rows, columns, and the table itself.
pub struct PanelData {
    pub panel: Panel,
    /// Values of the `part` column, each with a description of such rows.
    pub parts: &'static [(&'static str, &'static str)],
    pub columns: &'static [Column],
    pub table: fn(Scene<'_>) -> Table,
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
    &prompts::DATA,
    &story::DATA,
];

/// The exported data of a panel.
pub fn of(panel: Panel) -> &'static PanelData {
    let found = PANELS.iter().find(|data| data.panel == panel);
    // A test checks that every panel is in the list.
    found.copied().unwrap_or(PANELS[0])
}

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

impl CellValue for Figure {
    const KIND: Kind = Kind::Number;

    fn cell(self) -> Cell {
        match self {
            Self::Single(value) => value.cell(),
            Self::Double(value) => value.cell(),
        }
    }
}

/// The selected layer.
fn selected_layer(app: Scene<'_>) -> Place {
    Place::layer(app.selection.stack, app.selection.layer_idx)
}

/// The selected head.
fn selected_head(app: Scene<'_>) -> Place {
    selected_layer(app).head(app.selection.head_idx)
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
            let table = (data.table)(app.scene());
            let names: Vec<&str> = data.columns.iter().map(|column| column.id).collect();
            assert_eq!(table.columns, data.columns, "{:?}", data.panel);
            assert!(table.rows.is_empty(), "{:?}", data.panel);
            assert_eq!(names[0], "part");
            assert!(data.columns.iter().all(|column| !column.about.is_empty()));
            assert!(!data.parts.is_empty());
        }
    }
}
