//! Tables in NumPy's files: streamed, so that only the rows that are wanted are ever held.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use zip::ZipArchive;

use super::{Embeddings, Source, chosen, table_of};
use crate::checkpoint::map::Bytes;
use crate::checkpoint::npy::{Npy, unreadable};
use crate::error::{Error, Result};

/// Numbers of a table at most: four million words of a thousand numbers each. More would take minutes to stream.
const MOST_NUMBERS: u64 = 1 << 32;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

fn archive(bytes: &Bytes) -> Result<Archive<'_>> {
    ZipArchive::new(Cursor::new(bytes.as_slice()))
        .map_err(|e| Error::file(bytes.path(), format!("is no .npz archive ({e})")))
}

/// Opens the table of an archive.
pub(super) fn open_archive(bytes: Bytes) -> Result<Embeddings> {
    let mut opened = archive(&bytes)?;
    let names = opened.file_names().filter_map(|member| {
        let name = member.ok()?.strip_suffix(".npy")?.to_owned();
        Some(name)
    });
    let names: Vec<String> = names.collect();
    let name = chosen(&names, "an array called").map_err(|e| Error::file(bytes.path(), e))?;
    let member = format!("{name}.npy");
    let header = {
        let stored = opened.by_name(&member);
        let stored = stored.map_err(|e| damaged(&bytes, &name, &unreadable(&e)))?;
        header(stored).map_err(|e| damaged(&bytes, &name, &e))?
    };
    drop(opened);
    Ok(described(bytes.clone(), header, Source::Npz(bytes, member)))
}

/// Opens a table that is a file of its own.
pub(super) fn open_array(bytes: Bytes) -> Result<Embeddings> {
    let header = header(bytes.as_slice()).map_err(|e| Error::file(bytes.path(), e))?;
    Ok(described(bytes.clone(), header, Source::Npy(bytes)))
}

fn damaged(bytes: &Bytes, name: &str, problem: &str) -> Error {
    Error::tensor(bytes.path(), name, problem)
}

struct Header {
    n_rows: usize,
    width: usize,
    stored_as: String,
}

fn header(stored: impl Read) -> std::result::Result<Header, String> {
    let array = Npy::open(stored, MOST_NUMBERS)?;
    if !array.is_float() {
        let found = array.stored_as();
        return Err(format!("expected floating point, found {found}"));
    }
    let (n_rows, width) = table_of(&array.shape)?;
    Ok(Header {
        n_rows,
        width,
        stored_as: array.stored_as(),
    })
}

fn described(bytes: Bytes, header: Header, source: Source) -> Embeddings {
    Embeddings {
        path: bytes.path().to_path_buf(),
        n_rows: header.n_rows,
        width: header.width,
        stored_as: header.stored_as,
        source,
    }
}

pub(super) fn rows_of_archive(
    table: &Embeddings,
    bytes: &Bytes,
    member: &str,
    wanted: &[usize],
) -> Result<Vec<f32>> {
    let name = member.trim_end_matches(".npy");
    let mut opened = archive(bytes)?;
    let stored = opened.by_name(member);
    let stored = stored.map_err(|e| damaged(bytes, name, &unreadable(&e)))?;
    rows(table, stored, wanted).map_err(|e| damaged(bytes, name, &e))
}

pub(super) fn rows_of_array(
    table: &Embeddings,
    bytes: &Bytes,
    wanted: &[usize],
) -> Result<Vec<f32>> {
    rows(table, bytes.as_slice(), wanted).map_err(|e| Error::file(&table.path, e))
}

/// The wanted rows of a whole array; all of it is read, so that an archive's checksum is held against it.
fn rows(
    table: &Embeddings,
    mut stored: impl Read,
    wanted: &[usize],
) -> std::result::Result<Vec<f32>, String> {
    let (n_rows, width) = (table.n_rows, table.width);
    let mut slot_of: BTreeMap<usize, usize> = BTreeMap::new();
    for row in wanted {
        let next = slot_of.len();
        slot_of.entry(*row).or_insert(next);
    }
    let mut found = vec![0.0f32; slot_of.len() * width];
    let array = Npy::open(&mut stored, MOST_NUMBERS)?;
    if array.shape != [n_rows, width] {
        return Err("changed while it was read".to_owned());
    }
    let is_fortran = array.is_fortran;
    let mut last: Option<(usize, Option<usize>)> = None;
    array.each(&mut |idx, value| {
        let (row, column) = match is_fortran {
            false => (idx / width, idx % width),
            true => (idx % n_rows, idx / n_rows),
        };
        // Rows run through one after another: one look for all of its numbers.
        let slot = match last {
            Some((seen, slot)) if seen == row => slot,
            _ => slot_of.get(&row).copied(),
        };
        last = Some((row, slot));
        if let Some(slot) = slot {
            found[slot * width + column] = value as f32;
        }
    })?;
    // The checksum stands at the end of a member, behind its last number.
    std::io::copy(&mut stored, &mut std::io::sink()).map_err(|e| unreadable(&e))?;
    let rows = wanted.iter().filter_map(|row| slot_of.get(row));
    Ok(rows
        .flat_map(|slot| found[slot * width..(slot + 1) * width].to_vec())
        .collect())
}
