//! Every page is in the table of contents, and every relative link leads to a file and a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::pages;

fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// The names that headings get in mdBook and on GitHub.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut heading: Option<String> = None;
    for event in events(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let words = heading.take().unwrap_or_default().to_lowercase();
                let kept = words.chars().filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                });
                let anchor: String = kept.collect();
                let n_before = seen.entry(anchor.clone()).or_default();
                let nth = *n_before;
                *n_before += 1;
                anchors.insert(match nth {
                    0 => anchor,
                    n => format!("{anchor}-{n}"),
                });
            }
            _ => {}
        }
    }
    anchors
}

/// Where links and pictures of a page lead.
fn targets(text: &str) -> Vec<String> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    };
    events(text).filter_map(target).collect()
}

/// Why a link of a page leads nowhere.
fn broken(page: &Path, text: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = Path::new(file);
    let is_in_docs = page.parent().is_some_and(|p| p.ends_with("docs"));
    if is_in_docs && file.starts_with("..") {
        return Some("leads out of the book".to_owned());
    }
    let of_file;
    let text = if file.as_os_str().is_empty() {
        text
    } else {
        let path = page.parent()?.join(file);
        if !path.exists() {
            return Some("there is no such file".to_owned());
        }
        if anchor.is_empty() {
            return None;
        }
        of_file = std::fs::read_to_string(&path).ok()?;
        &of_file
    };
    let is_there = anchor.is_empty() || anchors(text).contains(anchor);
    (!is_there).then(|| "there is no such heading".to_owned())
}

#[test]
fn the_table_of_contents_names_every_page_once() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.path.ends_with("SUMMARY.md"));
    let mut named = targets(&summary.expect("docs/SUMMARY.md").text);
    named.sort();
    let files = pages.iter().map(super::Page::name);
    let files = files.filter_map(|name| Some(name.strip_prefix("docs/")?.to_owned()));
    let files: Vec<String> = files.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(named, files);
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut n_links = 0;
    let mut dead = Vec::new();
    for page in pages() {
        for target in targets(&page.text) {
            n_links += 1;
            if let Some(why) = broken(&page.path, &page.text, &target) {
                dead.push(format!("{}: {target}: {why}", page.name()));
            }
        }
    }
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(n_links > 200, "{n_links} links only");
}

#[test]
fn a_link_to_no_file_and_no_heading_is_found() {
    let page = testing::root().join("docs/keys.md");
    let text = "# Keys\n\n## Two `runs`, side by side\n\n## Two runs side by side\n";
    for (target, is_broken) in [
        ("screen.md", false),
        ("screen.md#two-runs", false),
        ("#two-runs-side-by-side-1", false),
        ("https://crates.io", false),
        ("nowhere.md", true),
        ("screen.md#nowhere", true),
        ("#two-runs-side-by-side-2", true),
        ("../README.md", true),
    ] {
        let found = broken(&page, text, target);
        assert_eq!(found.is_some(), is_broken, "{target}: {found:?}");
    }
}
