//! The data of the Prompts panel: every statistic of every head over the prompts, and the places that excite each head.

use attnscope_report::table::{Table, TableRow};
use attnscope_report::{OVER_PROMPTS_PARTS, OverPromptsRow, over_prompts_rows};

use super::PanelData;
use crate::state::panel::Panel;
use crate::state::scene::Scene;

pub static DATA: PanelData = PanelData {
    panel: Panel::Prompts,
    parts: OVER_PROMPTS_PARTS,
    columns: OverPromptsRow::COLUMNS,
    table,
};

fn table(app: Scene<'_>) -> Table {
    let over = app.over_prompts();
    let rows = over.map(|over| over_prompts_rows(over, &|idx| app.prompt_id(idx)));
    rows.unwrap_or_else(|| Table::of(Vec::<OverPromptsRow>::new()))
}
