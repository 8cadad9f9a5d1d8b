#pragma once

#include <cstdint>

namespace lowtide::snapshot {

// The strings that every snapshot is made of, interned first so that their id is their name here.
// clang-format off
#define LOWTIDE_KNOWN_STRINGS(X)                                                                                   \
  X(kAction, "action") X(kAddr, "addr") X(kDeviceFree, "device_free") X(kSize, "size") X(kStream, "stream")        \
  X(kTimeUs, "time_us") X(kCompileContext, "compile_context") X(kUserMetadata, "user_metadata")                    \
  X(kPoolId, "pool_id") X(kFrames, "frames") X(kName, "name") X(kFilename, "filename") X(kLine, "line")            \
  X(kAlloc, "alloc") X(kFreeRequested, "free_requested") X(kFreeCompleted, "free_completed")                       \
  X(kSegmentAlloc, "segment_alloc") X(kSegmentFree, "segment_free") X(kSegmentMap, "segment_map")                  \
  X(kSegmentUnmap, "segment_unmap") X(kSnapshotAction, "snapshot") X(kOom, "oom")                                  \
  X(kUserDefined, "user_defined") X(kAnnotate, "annotate") X(kWorkspaceSnapshot, "workspace_snapshot")             \
  X(kNotApplicable, "N/A") X(kSegments, "segments") X(kDeviceTraces, "device_traces")                              \
  X(kAllocatorSettings, "allocator_settings") X(kExternalAnnotations, "external_annotations")                      \
  X(kHostSegments, "host_segments") X(kHostTraces, "host_traces") X(kSourceCode, "source_code")                    \
  X(kDevice, "device") X(kAddress, "address") X(kTotalSize, "total_size") X(kAllocatedSize, "allocated_size")      \
  X(kActiveSize, "active_size") X(kRequestedSize, "requested_size") X(kSegmentType, "segment_type")                \
  X(kSegmentPoolId, "segment_pool_id") X(kIsExpandable, "is_expandable") X(kBlocks, "blocks") X(kState, "state")   \
  X(kHistory, "history") X(kRealSize, "real_size") X(kStage, "stage") X(kSmall, "small")                           \
  X(kInactive, "inactive") X(kActiveAllocated, "active_allocated") X(kActivePendingFree, "active_pending_free")    \
  X(kActiveAwaitingFree, "active_awaiting_free") X(kStart, "START") X(kFxNodeName, "fx_node_name")                 \
  X(kInternalMetadata, "internal_metadata")
// clang-format on

enum Known : uint32_t {
  kNothing = 0,  // ""
#define X(id, text) id,
  LOWTIDE_KNOWN_STRINGS(X)
#undef X
      kKnownCount
};

}  // namespace lowtide::snapshot
