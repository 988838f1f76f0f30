//! Shading of tokens: by attention from the selected token to them, or from them to it.

use attnscope_run::HeadDetail;
use attnscope_terminal::theme::Theme;
use ratatui::style::Style;

use crate::figure::share;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::state::views::Axis;

/// The axis of the token that the panel moves, and the axis of the tokens it shades.
pub fn axes(app: Scene<'_>) -> (Axis, Axis) {
    if app.tokens_view.shows_received {
        (Axis::Key, Axis::Query)
    } else {
        (Axis::Query, Axis::Key)
    }
}

/// The token that the panel moves.
pub fn selected(app: Scene<'_>) -> usize {
    let (query_idx, key_idx) = app.crosshair();
    if app.tokens_view.shows_received {
        key_idx
    } else {
        query_idx
    }
}

/// Attention between the selected token and every other.
pub fn shares(app: Scene<'_>) -> Option<Vec<f32>> {
    Some(shares_of(app, app.shown_detail()?))
}

/// Change of that attention from A to B, if the screen shows the difference.
fn changes(app: Scene<'_>) -> Option<Vec<f32>> {
    let [of_a, of_b] = app.both_details().filter(|_| app.shows_difference())?;
    let side = |side: Shows, detail: &HeadDetail| {
        let (query_idx, key_idx) = app.crosshair_in(side);
        let here = if app.tokens_view.shows_received {
            key_idx
        } else {
            query_idx
        };
        shares_from(Scene::of(app.state(), side), here, detail)
    };
    let (before, after) = (side(Shows::A, of_a), side(Shows::B, of_b));
    let axis = axes(app).1;
    // A token missing in A received nothing there.
    let was = |idx: usize| {
        let idx = app.counterpart(axis, idx);
        idx.and_then(|idx| before.get(idx)).copied().unwrap_or(0.0)
    };
    let after = after.iter().enumerate();
    Some(after.map(|(idx, after)| after - was(idx)).collect())
}

fn shares_of(app: Scene<'_>, detail: &HeadDetail) -> Vec<f32> {
    shares_from(app, selected(app), detail)
}

/// Attention between one token and every other.
fn shares_from(app: Scene<'_>, token_idx: usize, detail: &HeadDetail) -> Vec<f32> {
    let finest = detail.pattern.finest();
    let pooling = detail.pooling();
    let at = |idx: usize| {
        let (here, there) = (token_idx / pooling, idx / pooling);
        if app.tokens_view.shows_received {
            finest.at(there, here)
        } else {
            finest.at(here, there)
        }
    };
    (0..app.n_along(axes(app).1)).map(at).collect()
}

/// Shading values of tokens: attention, or its change, with their range.
pub struct Shades {
    pub theme: Theme,
    pub values: Option<Vec<f32>>,
    pub is_change: bool,
    pub range: (f64, f64),
}

impl Shades {
    pub fn of(app: Scene<'_>) -> Self {
        let changes = changes(app);
        let is_change = changes.is_some();
        let values = changes.or_else(|| shares(app));
        let sizes = values.iter().flatten().copied().map(f32::abs);
        let largest = sizes.filter(|v| v.is_finite()).fold(0.0f32, f32::max);
        let high = if largest > 0.0 {
            f64::from(largest)
        } else {
            1.0
        };
        Self {
            theme: if is_change {
                app.theme.diverging()
            } else {
                app.theme.clone()
            },
            values,
            is_change,
            range: (if is_change { -high } else { 0.0 }, high),
        }
    }

    /// Position of a token's value in the range.
    pub fn at(&self, idx: usize) -> f32 {
        let value = self.values.as_ref().and_then(|values| values.get(idx));
        value.map_or(0.0, |value| share(f64::from(*value), self.range))
    }

    /// Style of a token.
    pub fn style(&self, idx: usize) -> Style {
        let at = self.at(idx);
        if self.theme.has_colour() && self.values.is_some() {
            Style::new()
                .bg(self.theme.heat(at))
                .fg(self.theme.on_heat(at))
        } else {
            Style::new()
        }
    }

    /// Text after a token: without colour, its shade.
    pub fn gap(&self, idx: usize) -> String {
        if self.theme.has_colour() {
            " ".to_owned()
        } else {
            // Between words, nothing stands for a share of 0.
            self.theme.glyph(self.at(idx)).to_string().replace('·', " ")
        }
    }
}
