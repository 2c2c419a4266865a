//! The limits of CUDA's launches, and the attributes that say their shape.

use cudarc::driver::sys::{
    CUclusterSchedulingPolicy, CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchAttributeValue,
};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::launch::Shape;

/// Fails for a shape that exceeds a limit of every compute capability since 2.0.
pub(super) fn check(shape: &Shape) -> Result<()> {
    let wrong = |message: String| Err(Error::invalid_argument("launch_create", message));
    let block = shape.block;
    let threads = block.iter().map(|&n| u128::from(n)).product::<u128>();
    if !(1..=1024).contains(&threads) || block[2] > 64 {
        return wrong(format!(
            "a block of {block:?} threads; 1 to 1024 are possible, at most 64 of them in z"
        ));
    }
    let cluster = shape.cluster;
    let blocks = cluster.iter().map(|&n| u128::from(n)).product::<u128>();
    if !(1..=16).contains(&blocks) {
        return wrong(format!(
            "a cluster of {cluster:?} blocks; 1 to 16 are possible"
        ));
    }
    Ok(())
}

/// Fails for a grid that exceeds a limit of every compute capability since 3.0 (CUDA C++ programming guide, technical
/// specifications).
pub(super) fn check_grid(grid: [u32; 3]) -> Result<()> {
    if grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        let message = format!("the grid {grid:?} is larger than [2147483647, 65535, 65535]");
        return Err(Error::invalid_argument("launch_create", message));
    }
    Ok(())
}

/// Blocks of a cluster of a checked shape.
pub(super) fn cluster_blocks(shape: &Shape) -> u32 {
    shape.cluster.iter().product()
}

/// The attributes of a launch, in Triton's order.
pub(super) fn attributes(shape: &Shape) -> Box<[CUlaunchAttribute]> {
    let mut attributes = Vec::new();
    let mut add = |id, set: &dyn Fn(&mut CUlaunchAttributeValue)| {
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        set(&mut value);
        let pad = [0; 4];
        attributes.push(CUlaunchAttribute { id, pad, value });
    };
    if shape.pdl {
        let id = Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        add(id, &|value| {
            value.programmaticStreamSerializationAllowed = 1
        });
    }
    if shape.cooperative {
        add(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| {
            value.cooperative = 1;
        });
    }
    if cluster_blocks(shape) != 1 {
        let [x, y, z] = shape.cluster;
        add(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
            value.clusterDim.x = x;
            value.clusterDim.y = y;
            value.clusterDim.z = z;
        });
        let id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
        add(id, &|value| {
            value.clusterSchedulingPolicyPreference =
                CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
        });
    }
    attributes.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_cuda_accepts() {
        let shape = |block, cluster| Shape {
            block,
            cluster,
            ..Shape::default()
        };
        assert!(check(&shape([1024, 1, 1], [16, 1, 1])).is_ok());
        for (block, cluster) in [
            ([0, 1, 1], [1; 3]),
            ([32, 33, 1], [1; 3]),
            ([1, 1, 65], [1; 3]),
            ([1; 3], [0, 1, 1]),
            ([1; 3], [17, 1, 1]),
            ([u32::MAX; 3], [1; 3]),
        ] {
            let shape = shape(block, cluster);
            let refused = check(&shape).is_err_and(|e| e.to_string().contains("possible"));
            assert!(refused, "{shape:?}");
        }
    }

    #[test]
    fn grids_are_those_cuda_accepts() {
        assert!(check_grid([i32::MAX as u32, 65_535, 65_535]).is_ok());
        for grid in [[1, 65_536, 1], [1, 1, 65_536], [1 << 31, 1, 1]] {
            let error = check_grid(grid).expect_err("refused").to_string();
            assert!(error.contains("larger"), "{error}");
        }
    }

    #[test]
    fn attributes_are_given_only_where_they_say_something() {
        let ids = |shape: Shape| attributes(&shape).iter().map(|a| a.id).collect::<Vec<_>>();
        assert_eq!(ids(Shape::default()), []);
        let everything = Shape {
            cluster: [2, 1, 1],
            cooperative: true,
            pdl: true,
            ..Shape::default()
        };
        assert_eq!(
            ids(everything),
            [
                Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            ]
        );
    }
}
