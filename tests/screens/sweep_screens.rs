//! The Sweep panel: the selected query, its head and its layer against sweeps of the same scores computed here.

use attnscope_prompt::Request;
use attnscope_run::{Sweep, SweepPoint};
use attnscope_screen::{Depth, Export, Panel};
use attnscope_spec::Stack;
use crossterm::event::KeyCode;
use testing::screen::Screen;

const TEXT: &str = "the old king gave a red apple to his good horse";

fn swept(size: (u16, u16)) -> Screen {
    let mut screen = Screen::open(None, Request::text(TEXT), size, Depth::Truecolor);
    screen.app.shows_times = false;
    screen.go(Panel::Sweep);
    screen
}

/// The same scores by the same scales, of every head of a layer.
fn by_hand(screen: &mut Screen, scales: &[f64]) -> Vec<SweepPoint> {
    let mut sweep = Sweep::new(scales);
    let start = screen.app.selection.head_idx;
    for head_idx in 0..screen.app.scene().n_heads() {
        screen.app.selection.head_idx = head_idx;
        screen.resize(120, 40);
        let detail = screen.app.scene().shown_detail().expect("a head");
        let scores = detail.scores.finest();
        sweep.add_rows(&scores.cells, scores.n_cols);
    }
    screen.app.selection.head_idx = start;
    screen.resize(120, 40);
    sweep.points()
}

#[test]
fn a_layer_is_swept_on_demand_and_is_the_mean_of_its_heads() {
    let mut screen = swept((120, 40));
    assert!(screen.app.scene().swept_layer().is_none());
    assert!(screen.text().contains("a adds the whole layer"));
    screen.typed("a");
    let points = screen.app.scene().swept_layer().expect("a sweep").to_vec();
    assert!(screen.text().contains("all heads"));
    let scales: Vec<f64> = points.iter().map(|point| point.scale).collect();
    let expected = by_hand(&mut screen, &scales);
    for (found, expected) in points.iter().zip(&expected) {
        assert!((found.max_probability.mean - expected.max_probability.mean).abs() < 1e-12);
        assert!((found.relative_entropy.mean - expected.relative_entropy.mean).abs() < 1e-12);
    }
    // Another layer is another sweep, and the key takes it away.
    screen.typed("}");
    assert_eq!(screen.app.selection.layer_idx, 1);
    let other = screen.app.scene().swept_layer().expect("a sweep").to_vec();
    assert_ne!(
        other[20].relative_entropy.mean,
        points[20].relative_entropy.mean
    );
    screen.typed("a");
    assert!(screen.app.scene().swept_layer().is_none());
}

#[test]
fn its_data_have_the_layer_where_it_is_swept() {
    let mut screen = swept((120, 40));
    let parts = |screen: &mut Screen| -> Vec<String> {
        let export = Export::of(&screen.app, false).expect("an export");
        let mut table = csv::Reader::from_reader(export.csv.as_slice());
        let rows = table.records().map(|row| row.expect("a row"));
        let mut parts: Vec<String> = rows.map(|row| row[0].to_owned()).collect();
        parts.dedup();
        parts
    };
    assert_eq!(parts(&mut screen), ["query", "head"]);
    screen.typed("a");
    assert_eq!(parts(&mut screen), ["query", "head", "layer"]);
}

#[test]
fn a_what_if_has_a_sweep_of_its_own() {
    let mut screen = swept((120, 40));
    screen.typed("a");
    let before = screen.app.scene().swept_layer().expect("a sweep").to_vec();
    screen.typed("w");
    screen.typed("scale=none");
    screen.key(KeyCode::Enter);
    assert!(screen.text().contains("WHAT IF"));
    let after = screen.app.scene().swept_layer().expect("a sweep").to_vec();
    let at = |points: &[SweepPoint], scale: f64| {
        let nearest = points.iter().min_by(|a, b| {
            let off = |point: &SweepPoint| (point.scale / scale).ln().abs();
            off(a).total_cmp(&off(b))
        });
        nearest.expect("points").relative_entropy.mean
    };
    // In the first layer, unscaled scores are those from before times √d.
    let root = (screen.app.scene().attention().expect("a layer").d_head as f64).sqrt();
    assert_eq!(screen.app.selection.stack, Stack::Only);
    assert!((at(&after, 1.0) - at(&before, root)).abs() < 2e-2);
    assert!(screen.text().contains("now, unscaled"));
}

#[test]
fn it_is_drawn_at_both_sizes() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = swept(size);
        screen.typed("a");
        let name = format!("sweep_layer_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, screen.picture());
    }
}
