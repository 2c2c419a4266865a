//! The files by which a kernel's driver shows devices.

/// How many files `/dev/<prefix>0`, `/dev/<prefix>1`, ... there are.
pub fn count(prefix: &str) -> usize {
    let Ok(folder) = std::fs::read_dir("/dev") else {
        return 0;
    };
    let names = folder.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| is_device(name, prefix)).count()
}

fn is_device(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_files_have_a_number() {
        for (name, is) in [
            ("davinci0", true),
            ("davinci12", true),
            ("davinci_manager", false),
            ("davinci", false),
            ("davinci1x", false),
            ("nvidia0", false),
        ] {
            assert_eq!(is_device(name, "davinci"), is, "{name}");
        }
    }
}
