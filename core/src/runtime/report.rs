//! The allocator's reports: the table of an out-of-memory error, and the snapshot of the cache.

use std::fmt::Write;

use serde::Serialize;

use crate::error::{Error, Result};

use super::block::{Block, NONE, PoolKind, State};
use super::device_state::DeviceState;
use super::pool::Pool;
use super::stats::{MemoryStats, Stat, StatArray};

/// Bytes as a person reads them: `512 B`, `1.50 GiB`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let power = (count.ilog2() / 10).min(UNITS.len() as u32);
    let value = count as f64 / (1_u64 << (10 * power)) as f64;
    format!("{value:.2} {}", UNITS[power as usize - 1])
}

/// The error for a request that fails after all cached memory was given back.
pub(super) fn out_of_memory(
    vendor: &str,
    device: usize,
    nbytes: usize,
    state: &DeviceState,
) -> Error {
    let stats = state.pool.tallies.stats();
    let current = |array: StatArray| array.all.current as u64;
    let (allocated, reserved) = (
        current(stats.allocated_bytes),
        current(stats.reserved_bytes),
    );
    let mut message = format!(
        "{vendor} device {device} has no room for {}: {} of {} are allocated, {} reserved",
        bytes(nbytes as u64),
        bytes(allocated),
        bytes(state.total as u64),
        bytes(reserved),
    );
    let cached = reserved.saturating_sub(current(stats.active_bytes));
    let refusal = state.refusal.as_ref();
    if let Some(refusal) = refusal {
        message.push_str("; ");
        message.push_str(refusal.message());
    }
    let hint = if let Some(hint) = refusal.and_then(Error::hint) {
        hint
    } else if state.pool.shelves.is_capturing() {
        "while a graph is captured, no cached memory can be given back: free memory and empty the cache before the capture"
    } else if state.limit < state.total {
        "free tensors, or raise the memory fraction of this process"
    } else if cached >= nbytes as u64 {
        "memory is fragmented: free tensors that share segments, or allocate large ones first"
    } else if vendor == "host" {
        "free tensors, use smaller batches, or raise FLAGOS_HOST_MEMORY"
    } else {
        "free tensors or use smaller batches"
    };
    Error::out_of_memory("mem_alloc", message)
        .with_hint(hint)
        .with_detail(table(nbytes, state, &stats))
}

/// The error for a request larger than the device.
pub(super) fn more_than_there_is(
    vendor: &str,
    device: usize,
    nbytes: usize,
    state: &DeviceState,
) -> Error {
    let message = format!(
        "{} were requested, more than the {} that {vendor} device {device} has in all",
        bytes(nbytes as u64),
        bytes(state.total as u64),
    );
    let stats = state.pool.tallies.stats();
    Error::out_of_memory("mem_alloc", message)
        .with_hint("check the shape, or split the work")
        .with_detail(table(nbytes, state, &stats))
}

fn table(nbytes: usize, state: &DeviceState, stats: &MemoryStats) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn Fn(&mut String)| {
        let _ = write!(text, "  {name:<22}");
        value(&mut text);
        text.push('\n');
    };
    let total = state.total as u64;
    let reserved = stats.reserved_bytes.all.current as u64;
    row("", &|t| {
        let _ = write!(t, "{:>12} {:>12} {:>12}", "all", "small pool", "large pool");
    });
    for (name, array) in [
        ("allocated", &stats.allocated_bytes),
        ("asked for by callers", &stats.requested_bytes),
        (
            "used by other streams",
            &minus(&stats.active_bytes, &stats.allocated_bytes),
        ),
        ("free, split", &stats.inactive_split_bytes),
        ("reserved", &stats.reserved_bytes),
        ("peak reserved", &peak(&stats.reserved_bytes)),
    ] {
        row(name, &|t| {
            for stat in [array.all, array.small, array.large] {
                let _ = write!(t, "{:>12} ", bytes(stat.current.max(0) as u64));
            }
        });
    }
    for (name, value) in [
        ("requested", nbytes as u64),
        ("limit of this process", state.limit as u64),
        ("total", total),
        ("free", (state.limit as u64).saturating_sub(reserved)),
    ] {
        row(name, &|t| {
            let _ = write!(t, "{:>12}", bytes(value));
        });
    }
    let trimmed: Vec<_> = text.lines().map(str::trim_end).collect();
    trimmed.join("\n")
}

fn map(array: &StatArray, pick: impl Fn(Stat) -> i64) -> StatArray {
    let stat = |from| Stat {
        current: pick(from),
        ..Stat::default()
    };
    StatArray {
        all: stat(array.all),
        small: stat(array.small),
        large: stat(array.large),
    }
}

fn peak(array: &StatArray) -> StatArray {
    map(array, |stat| stat.peak)
}

fn minus(a: &StatArray, b: &StatArray) -> StatArray {
    let stat = |a: Stat, b: Stat| Stat {
        current: a.current - b.current,
        ..Stat::default()
    };
    StatArray {
        all: stat(a.all, b.all),
        small: stat(a.small, b.small),
        large: stat(a.large, b.large),
    }
}

#[derive(Serialize)]
struct SegmentRecord {
    device: usize,
    address: usize,
    total_size: usize,
    allocated_size: usize,
    active_size: usize,
    requested_size: usize,
    stream: u32,
    segment_type: &'static str,
    is_expandable: bool,
    blocks: Vec<BlockRecord>,
}

#[derive(Serialize)]
struct BlockRecord {
    address: usize,
    size: usize,
    requested_size: usize,
    state: &'static str,
}

/// The list of segments, each with its blocks, with the keys of torch's `memory_snapshot()`.
pub(super) fn snapshot(device: usize, pool: &Pool) -> Result<String> {
    let firsts = pool.blocks.iter().filter(|(_, block)| block.prev == NONE);
    let mut segments: Vec<_> = firsts
        .map(|(_, block)| segment(device, pool, block))
        .collect();
    segments.sort_by_key(|segment| segment.address);
    serde_json::to_string(&segments)
        .map_err(|error| Error::internal("mem_snapshot_json", "not serialised").with_source(error))
}

fn segment(device: usize, pool: &Pool, first: &Block) -> SegmentRecord {
    let mut record = SegmentRecord {
        device,
        address: first.address,
        total_size: 0,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        stream: first.stream,
        segment_type: PoolKind::name(first.pool),
        is_expandable: false,
        blocks: Vec::new(),
    };
    let mut next = Some(first);
    while let Some(block) = next {
        let state = match block.state {
            State::Allocated => "active_allocated",
            State::Deferred => "active_pending_free",
            _ => "inactive",
        };
        record.total_size += block.size;
        record.requested_size += block.requested;
        if block.state == State::Allocated {
            record.allocated_size += block.size;
        }
        if matches!(block.state, State::Allocated | State::Deferred) {
            record.active_size += block.size;
        }
        record.blocks.push(BlockRecord {
            address: block.address,
            size: block.size,
            requested_size: block.requested,
            state,
        });
        next = (block.next != NONE).then(|| &pool.blocks[block.next]);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_readable() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.50 KiB"),
            (3 << 30, "3.00 GiB"),
            (u64::MAX, "16384.00 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
