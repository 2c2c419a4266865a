//! The machine's processor, cores and memory.

use std::fs;
use std::path::Path;

/// The name of the processor.
pub(super) fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = model_name(&text).unwrap_or(std::env::consts::ARCH);
    format!("{named} (host)")
}

fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim()).filter(|name| !name.is_empty())
}

/// The number of threads that run at once.
pub(super) fn cores() -> i32 {
    std::thread::available_parallelism().map_or(1, |n| i32::try_from(n.get()).unwrap_or(i32::MAX))
}

/// Bytes of memory: the machine's, or the least that a control group of this process allows.
pub(super) fn memory() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let physical = total_memory(&meminfo).unwrap_or(u64::MAX);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, |path| fs::read_to_string(path).ok());
    let memory = limit.map_or(physical, |limit| limit.min(physical));
    if memory == u64::MAX {
        // Without either number: the memory of a small machine.
        return 4 << 30;
    }
    memory
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the groups in `/proc/self/cgroup` and of their ancestors.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/'));
        let ancestors = group
            .ancestors()
            .map(|part| Path::new(root).join(part).join(file));
        ancestors
            .filter_map(|path| read(&path)?.trim().parse::<u64>().ok())
            .min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_writes() {
        assert_eq!(
            total_memory("MemTotal:       24689540 kB\nMemFree: 1 kB\n"),
            Some(24689540 << 10)
        );
        assert_eq!(total_memory("nothing"), None);
        assert_eq!(
            model_name("processor : 0\nmodel name\t: A Chip\n"),
            Some("A Chip")
        );
        assert_eq!(model_name("model name :\n"), None);
    }

    #[test]
    fn the_least_limit_counts() {
        let read = |path: &Path| {
            let text = match path.to_str()? {
                "/sys/fs/cgroup/a/b/memory.max" => "max\n",
                "/sys/fs/cgroup/a/memory.max" => "1000\n",
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes" => "900\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(group_limit("0::/a/b\n", read), Some(1000));
        assert_eq!(
            group_limit("4:cpu:/x\n5:memory:/x\n0::/a/b\n", read),
            Some(900)
        );
        assert_eq!(group_limit("0::/c\n", read), None);
    }

    #[test]
    fn this_machine_has_something() {
        assert!(memory() > 1 << 20);
        assert!(cores() >= 1);
        assert!(processor().ends_with("(host)"));
    }
}
