/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The calls of the CUDA driver that Allot makes.
 *
 * A line is X(needed, since, where, field, symbol, (parameters), (arguments)); X0 is the same for a
 * call without parameters. `since` is the CUDA version that first had the symbol, as CUDA_VERSION
 * counts. `where` is the device that an error of the call concerns: a CUdevice among the
 * parameters, CUDA_HERE for that of the current context, CUDA_NOWHERE. Symbols are those of the
 * library: what cuda.h calls cuMemAlloc is cuMemAlloc_v2. cuda_check.c checks each line against the
 * vendor's header.
 */

/* clang-format off */
#define CUDA_CALLS_INIT(X, X0)                                                                     \
    X(true, 2000, CUDA_NOWHERE, init, cuInit, (unsigned flags), (flags))                           \
    X(true, 2020, CUDA_NOWHERE, driver_get_version, cuDriverGetVersion,                            \
      (int *driver_version), (driver_version))                                                     \
    X(true, 6000, CUDA_NOWHERE, get_error_name, cuGetErrorName,                                    \
      (CUresult error, const char **str), (error, str))                                            \
    X(false, 6000, CUDA_NOWHERE, get_error_string, cuGetErrorString,                               \
      (CUresult error, const char **str), (error, str))                                            \
    X(false, 11030, CUDA_NOWHERE, get_proc_address, cuGetProcAddress,                              \
      (const char *symbol, void **pfn, int cuda_version, cuuint64_t flags),                        \
      (symbol, pfn, cuda_version, flags))                                                          \
    X(false, 12000, CUDA_NOWHERE, get_proc_address_v2, cuGetProcAddress_v2,                        \
      (const char *symbol, void **pfn, int cuda_version, cuuint64_t flags,                         \
       CUdriverProcAddressQueryResult *symbol_status),                                             \
      (symbol, pfn, cuda_version, flags, symbol_status))

#define CUDA_CALLS_DEVICES(X, X0)                                                                  \
    X(true, 2000, CUDA_NOWHERE, device_get, cuDeviceGet,                                           \
      (CUdevice *device, int ordinal), (device, ordinal))                                          \
    X(true, 2000, CUDA_NOWHERE, device_get_count, cuDeviceGetCount, (int *count), (count))         \
    X(true, 2000, dev, device_get_name, cuDeviceGetName,                                           \
      (char *name, int len, CUdevice dev), (name, len, dev))                                       \
    X(false, 9020, dev, device_get_uuid, cuDeviceGetUuid,                                          \
      (CUuuid *uuid, CUdevice dev), (uuid, dev))                                                   \
    X(false, 11040, dev, device_get_uuid_v2, cuDeviceGetUuid_v2,                                   \
      (CUuuid *uuid, CUdevice dev), (uuid, dev))                                                   \
    X(true, 3020, dev, device_total_mem, cuDeviceTotalMem_v2,                                      \
      (size_t *bytes, CUdevice dev), (bytes, dev))                                                 \
    X(true, 2000, dev, device_get_attribute, cuDeviceGetAttribute,                                 \
      (int *pi, CUdevice_attribute attrib, CUdevice dev), (pi, attrib, dev))                       \
    X(false, 4010, dev, device_get_pci_bus_id, cuDeviceGetPCIBusId,                                \
      (char *pci_bus_id, int len, CUdevice dev), (pci_bus_id, len, dev))                           \
    X(false, 4010, CUDA_NOWHERE, device_get_by_pci_bus_id, cuDeviceGetByPCIBusId,                  \
      (CUdevice *dev, const char *pci_bus_id), (dev, pci_bus_id))                                  \
    X(false, 4000, dev, device_can_access_peer, cuDeviceCanAccessPeer,                             \
      (int *can_access_peer, CUdevice dev, CUdevice peer_dev), (can_access_peer, dev, peer_dev))   \
    X(false, 8000, src_device, device_get_p2p_attribute, cuDeviceGetP2PAttribute,                  \
      (int *value, CUdevice_P2PAttribute attrib, CUdevice src_device, CUdevice dst_device),        \
      (value, attrib, src_device, dst_device))

#define CUDA_CALLS_CONTEXTS(X, X0)                                                                 \
    X(true, 7000, dev, primary_ctx_retain, cuDevicePrimaryCtxRetain,                               \
      (CUcontext *pctx, CUdevice dev), (pctx, dev))                                                \
    X(true, 11000, dev, primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev))  \
    X(false, 11000, dev, primary_ctx_set_flags, cuDevicePrimaryCtxSetFlags_v2,                     \
      (CUdevice dev, unsigned flags), (dev, flags))                                                \
    X(false, 7000, dev, primary_ctx_get_state, cuDevicePrimaryCtxGetState,                         \
      (CUdevice dev, unsigned *flags, int *active), (dev, flags, active))                          \
    X(false, 11000, dev, primary_ctx_reset, cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev))     \
    X(false, 3020, dev, ctx_create, cuCtxCreate_v2,                                                \
      (CUcontext *pctx, unsigned flags, CUdevice dev), (pctx, flags, dev))                         \
    X(false, 4000, CUDA_HERE, ctx_destroy, cuCtxDestroy_v2, (CUcontext ctx), (ctx))                \
    X(true, 4000, CUDA_HERE, ctx_set_current, cuCtxSetCurrent, (CUcontext ctx), (ctx))             \
    X(true, 4000, CUDA_HERE, ctx_get_current, cuCtxGetCurrent, (CUcontext *pctx), (pctx))          \
    X(true, 4000, CUDA_HERE, ctx_push_current, cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))        \
    X(true, 4000, CUDA_HERE, ctx_pop_current, cuCtxPopCurrent_v2, (CUcontext *pctx), (pctx))       \
    X(true, 2000, CUDA_HERE, ctx_get_device, cuCtxGetDevice, (CUdevice *device), (device))         \
    X0(true, 2000, CUDA_HERE, ctx_synchronize, cuCtxSynchronize)                                   \
    X(false, 3010, CUDA_HERE, ctx_get_limit, cuCtxGetLimit,                                        \
      (size_t *pvalue, CUlimit limit), (pvalue, limit))                                            \
    X(false, 3010, CUDA_HERE, ctx_set_limit, cuCtxSetLimit,                                        \
      (CUlimit limit, size_t value), (limit, value))                                               \
    X(false, 5050, CUDA_HERE, ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange,          \
      (int *least_priority, int *greatest_priority), (least_priority, greatest_priority))          \
    X(false, 4000, CUDA_HERE, ctx_enable_peer_access, cuCtxEnablePeerAccess,                       \
      (CUcontext peer_context, unsigned flags), (peer_context, flags))                             \
    X(false, 4000, CUDA_HERE, ctx_disable_peer_access, cuCtxDisablePeerAccess,                     \
      (CUcontext peer_context), (peer_context))

#define CUDA_CALLS_MEMORY(X, X0)                                                                   \
    X(true, 3020, CUDA_HERE, mem_get_info, cuMemGetInfo_v2,                                        \
      (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes))                        \
    X(true, 3020, CUDA_HERE, mem_alloc, cuMemAlloc_v2,                                             \
      (CUdeviceptr *dptr, size_t bytesize), (dptr, bytesize))                                      \
    X(false, 3020, CUDA_HERE, mem_alloc_pitch, cuMemAllocPitch_v2,                                 \
      (CUdeviceptr *dptr, size_t *pitch, size_t width_in_bytes, size_t height,                     \
       unsigned element_size_bytes),                                                               \
      (dptr, pitch, width_in_bytes, height, element_size_bytes))                                   \
    X(false, 6000, CUDA_HERE, mem_alloc_managed, cuMemAllocManaged,                                \
      (CUdeviceptr *dptr, size_t bytesize, unsigned flags), (dptr, bytesize, flags))               \
    X(true, 3020, CUDA_HERE, mem_free, cuMemFree_v2, (CUdeviceptr dptr), (dptr))                   \
    X(false, 3020, CUDA_HERE, mem_get_address_range, cuMemGetAddressRange_v2,                      \
      (CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr), (pbase, psize, dptr))                 \
    X(false, 3020, CUDA_HERE, mem_alloc_host, cuMemAllocHost_v2,                                   \
      (void **ret, size_t bytesize), (ret, bytesize))                                              \
    X(true, 2020, CUDA_HERE, mem_host_alloc, cuMemHostAlloc,                                       \
      (void **ret, size_t bytesize, unsigned flags), (ret, bytesize, flags))                       \
    X(true, 2000, CUDA_HERE, mem_free_host, cuMemFreeHost, (void *p), (p))                         \
    X(false, 6050, CUDA_HERE, mem_host_register, cuMemHostRegister_v2,                             \
      (void *p, size_t bytesize, unsigned flags), (p, bytesize, flags))                            \
    X(false, 4000, CUDA_HERE, mem_host_unregister, cuMemHostUnregister, (void *p), (p))            \
    X(false, 3020, CUDA_HERE, mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2,           \
      (CUdeviceptr *pdptr, void *p, unsigned flags), (pdptr, p, flags))                            \
    X(false, 3020, CUDA_HERE, array_create, cuArrayCreate_v2,                                      \
      (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor), (array, descriptor))              \
    X(false, 2000, CUDA_HERE, array_destroy, cuArrayDestroy, (CUarray array), (array))             \
    X(false, 8000, dst_device, mem_prefetch_async, cuMemPrefetchAsync,                             \
      (CUdeviceptr dev_ptr, size_t count, CUdevice dst_device, CUstream stream),                   \
      (dev_ptr, count, dst_device, stream))                                                        \
    X(false, 8000, device, mem_advise, cuMemAdvise,                                                \
      (CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUdevice device),                   \
      (dev_ptr, count, advice, device))                                                            \
    X(false, 4000, CUDA_HERE, pointer_get_attribute, cuPointerGetAttribute,                        \
      (void *data, CUpointer_attribute attribute, CUdeviceptr ptr), (data, attribute, ptr))        \
    X(false, 7000, CUDA_HERE, pointer_get_attributes, cuPointerGetAttributes,                      \
      (unsigned num_attributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),    \
      (num_attributes, attributes, data, ptr))                                                     \
    X(false, 6000, CUDA_HERE, pointer_set_attribute, cuPointerSetAttribute,                        \
      (const void *value, CUpointer_attribute attribute, CUdeviceptr ptr),                         \
      (value, attribute, ptr))                                                                     \
    X(false, 4010, CUDA_HERE, ipc_get_mem_handle, cuIpcGetMemHandle,                               \
      (CUipcMemHandle *handle, CUdeviceptr dptr), (handle, dptr))                                  \
    X(false, 11000, CUDA_HERE, ipc_open_mem_handle, cuIpcOpenMemHandle_v2,                         \
      (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned flags), (pdptr, handle, flags))         \
    X(false, 4010, CUDA_HERE, ipc_close_mem_handle, cuIpcCloseMemHandle,                           \
      (CUdeviceptr dptr), (dptr))                                                                  \
    X(false, 4010, CUDA_HERE, ipc_get_event_handle, cuIpcGetEventHandle,                           \
      (CUipcEventHandle *handle, CUevent event), (handle, event))                                  \
    X(false, 4010, CUDA_HERE, ipc_open_event_handle, cuIpcOpenEventHandle,                         \
      (CUevent *event, CUipcEventHandle handle), (event, handle))

#define CUDA_CALLS_COPIES(X, X0)                                                                   \
    X(false, 4000, CUDA_HERE, copy, cuMemcpy,                                                      \
      (CUdeviceptr dst, CUdeviceptr src, size_t byte_count), (dst, src, byte_count))               \
    X(false, 4000, CUDA_HERE, copy_async, cuMemcpyAsync,                                           \
      (CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream stream),                      \
      (dst, src, byte_count, stream))                                                              \
    X(true, 3020, CUDA_HERE, copy_htod, cuMemcpyHtoD_v2,                                           \
      (CUdeviceptr dst_device, const void *src_host, size_t byte_count),                           \
      (dst_device, src_host, byte_count))                                                          \
    X(true, 3020, CUDA_HERE, copy_htod_async, cuMemcpyHtoDAsync_v2,                                \
      (CUdeviceptr dst_device, const void *src_host, size_t byte_count, CUstream stream),          \
      (dst_device, src_host, byte_count, stream))                                                  \
    X(true, 3020, CUDA_HERE, copy_dtoh, cuMemcpyDtoH_v2,                                           \
      (void *dst_host, CUdeviceptr src_device, size_t byte_count),                                 \
      (dst_host, src_device, byte_count))                                                          \
    X(true, 3020, CUDA_HERE, copy_dtoh_async, cuMemcpyDtoHAsync_v2,                                \
      (void *dst_host, CUdeviceptr src_device, size_t byte_count, CUstream stream),                \
      (dst_host, src_device, byte_count, stream))                                                  \
    X(true, 3020, CUDA_HERE, copy_dtod, cuMemcpyDtoD_v2,                                           \
      (CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count),                         \
      (dst_device, src_device, byte_count))                                                        \
    X(true, 3020, CUDA_HERE, copy_dtod_async, cuMemcpyDtoDAsync_v2,                                \
      (CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count, CUstream stream),        \
      (dst_device, src_device, byte_count, stream))                                                \
    X(false, 4000, CUDA_HERE, copy_peer, cuMemcpyPeer,                                             \
      (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,                      \
       CUcontext src_context, size_t byte_count),                                                  \
      (dst_device, dst_context, src_device, src_context, byte_count))                              \
    X(false, 4000, CUDA_HERE, copy_peer_async, cuMemcpyPeerAsync,                                  \
      (CUdeviceptr dst_device, CUcontext dst_context, CUdeviceptr src_device,                      \
       CUcontext src_context, size_t byte_count, CUstream stream),                                 \
      (dst_device, dst_context, src_device, src_context, byte_count, stream))                      \
    X(false, 3020, CUDA_HERE, copy_2d, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy))         \
    X(false, 3020, CUDA_HERE, copy_2d_async, cuMemcpy2DAsync_v2,                                   \
      (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream))                                \
    X(false, 3020, CUDA_HERE, copy_3d_async, cuMemcpy3DAsync_v2,                                   \
      (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream))                                \
    X(true, 3020, CUDA_HERE, memset_d8, cuMemsetD8_v2,                                             \
      (CUdeviceptr dst_device, unsigned char uc, size_t n), (dst_device, uc, n))                   \
    X(false, 3020, CUDA_HERE, memset_d16, cuMemsetD16_v2,                                          \
      (CUdeviceptr dst_device, unsigned short us, size_t n), (dst_device, us, n))                  \
    X(true, 3020, CUDA_HERE, memset_d32, cuMemsetD32_v2,                                           \
      (CUdeviceptr dst_device, unsigned ui, size_t n), (dst_device, ui, n))                        \
    X(true, 3020, CUDA_HERE, memset_d8_async, cuMemsetD8Async,                                     \
      (CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream stream),                       \
      (dst_device, uc, n, stream))                                                                 \
    X(false, 3020, CUDA_HERE, memset_d16_async, cuMemsetD16Async,                                  \
      (CUdeviceptr dst_device, unsigned short us, size_t n, CUstream stream),                      \
      (dst_device, us, n, stream))                                                                 \
    X(true, 3020, CUDA_HERE, memset_d32_async, cuMemsetD32Async,                                   \
      (CUdeviceptr dst_device, unsigned ui, size_t n, CUstream stream),                            \
      (dst_device, ui, n, stream))                                                                 \
    X(false, 3020, CUDA_HERE, memset_2d_d8_async, cuMemsetD2D8Async,                               \
      (CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height,    \
       CUstream stream),                                                                           \
      (dst_device, dst_pitch, uc, width, height, stream))                                          \
    X(false, 3020, CUDA_HERE, memset_2d_d32_async, cuMemsetD2D32Async,                             \
      (CUdeviceptr dst_device, size_t dst_pitch, unsigned ui, size_t width, size_t height,         \
       CUstream stream),                                                                           \
      (dst_device, dst_pitch, ui, width, height, stream))

#define CUDA_CALLS_VMM(X, X0)                                                                      \
    X(false, 10020, CUDA_HERE, mem_address_reserve, cuMemAddressReserve,                           \
      (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,                          \
       unsigned long long flags),                                                                  \
      (ptr, size, alignment, addr, flags))                                                         \
    X(false, 10020, CUDA_HERE, mem_address_free, cuMemAddressFree,                                 \
      (CUdeviceptr ptr, size_t size), (ptr, size))                                                 \
    X(false, 10020, CUDA_HERE, mem_create, cuMemCreate,                                            \
      (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,         \
       unsigned long long flags),                                                                  \
      (handle, size, prop, flags))                                                                 \
    X(false, 10020, CUDA_HERE, mem_release, cuMemRelease,                                          \
      (CUmemGenericAllocationHandle handle), (handle))                                             \
    X(false, 10020, CUDA_HERE, mem_map, cuMemMap,                                                  \
      (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,           \
       unsigned long long flags),                                                                  \
      (ptr, size, offset, handle, flags))                                                          \
    X(false, 10020, CUDA_HERE, mem_unmap, cuMemUnmap,                                              \
      (CUdeviceptr ptr, size_t size), (ptr, size))                                                 \
    X(false, 10020, CUDA_HERE, mem_set_access, cuMemSetAccess,                                     \
      (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),                   \
      (ptr, size, desc, count))                                                                    \
    X(false, 10020, CUDA_HERE, mem_get_access, cuMemGetAccess,                                     \
      (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr),                 \
      (flags, location, ptr))                                                                      \
    X(false, 10020, CUDA_HERE, mem_get_allocation_granularity, cuMemGetAllocationGranularity,      \
      (size_t *granularity, const CUmemAllocationProp *prop,                                       \
       CUmemAllocationGranularity_flags option),                                                   \
      (granularity, prop, option))                                                                 \
    X(false, 10020, CUDA_HERE, mem_get_allocation_properties,                                      \
      cuMemGetAllocationPropertiesFromHandle,                                                      \
      (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle), (prop, handle))            \
    X(false, 11000, CUDA_HERE, mem_retain_allocation_handle, cuMemRetainAllocationHandle,          \
      (CUmemGenericAllocationHandle *handle, void *addr), (handle, addr))                          \
    X(false, 10020, CUDA_HERE, mem_export_handle, cuMemExportToShareableHandle,                    \
      (void *shareable_handle, CUmemGenericAllocationHandle handle,                                \
       CUmemAllocationHandleType handle_type, unsigned long long flags),                           \
      (shareable_handle, handle, handle_type, flags))                                              \
    X(false, 10020, CUDA_HERE, mem_import_handle, cuMemImportFromShareableHandle,                  \
      (CUmemGenericAllocationHandle *handle, void *os_handle,                                      \
       CUmemAllocationHandleType sh_handle_type),                                                  \
      (handle, os_handle, sh_handle_type))

#define CUDA_CALLS_POOLS(X, X0)                                                                    \
    X(false, 11020, dev, device_get_default_mem_pool, cuDeviceGetDefaultMemPool,                   \
      (CUmemoryPool *pool_out, CUdevice dev), (pool_out, dev))                                     \
    X(false, 11020, dev, device_get_mem_pool, cuDeviceGetMemPool,                                  \
      (CUmemoryPool *pool, CUdevice dev), (pool, dev))                                             \
    X(false, 11020, dev, device_set_mem_pool, cuDeviceSetMemPool,                                  \
      (CUdevice dev, CUmemoryPool pool), (dev, pool))                                              \
    X(false, 11020, CUDA_HERE, mem_alloc_async, cuMemAllocAsync,                                   \
      (CUdeviceptr *dptr, size_t bytesize, CUstream stream), (dptr, bytesize, stream))             \
    X(false, 11020, CUDA_HERE, mem_free_async, cuMemFreeAsync,                                     \
      (CUdeviceptr dptr, CUstream stream), (dptr, stream))                                         \
    X(false, 11020, CUDA_HERE, mem_alloc_from_pool_async, cuMemAllocFromPoolAsync,                 \
      (CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream stream),                    \
      (dptr, bytesize, pool, stream))                                                              \
    X(false, 11020, CUDA_HERE, mem_pool_create, cuMemPoolCreate,                                   \
      (CUmemoryPool *pool, const CUmemPoolProps *pool_props), (pool, pool_props))                  \
    X(false, 11020, CUDA_HERE, mem_pool_destroy, cuMemPoolDestroy, (CUmemoryPool pool), (pool))    \
    X(false, 11020, CUDA_HERE, mem_pool_trim_to, cuMemPoolTrimTo,                                  \
      (CUmemoryPool pool, size_t min_bytes_to_keep), (pool, min_bytes_to_keep))                    \
    X(false, 11020, CUDA_HERE, mem_pool_set_attribute, cuMemPoolSetAttribute,                      \
      (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value))             \
    X(false, 11020, CUDA_HERE, mem_pool_get_attribute, cuMemPoolGetAttribute,                      \
      (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value))             \
    X(false, 11020, CUDA_HERE, mem_pool_set_access, cuMemPoolSetAccess,                            \
      (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count), (pool, map, count))           \
    X(false, 11020, CUDA_HERE, mem_pool_export_handle, cuMemPoolExportToShareableHandle,           \
      (void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handle_type,                 \
       unsigned long long flags),                                                                  \
      (handle_out, pool, handle_type, flags))                                                      \
    X(false, 11020, CUDA_HERE, mem_pool_import_handle, cuMemPoolImportFromShareableHandle,         \
      (CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handle_type,                \
       unsigned long long flags),                                                                  \
      (pool_out, handle, handle_type, flags))                                                      \
    X(false, 11020, CUDA_HERE, mem_pool_export_pointer, cuMemPoolExportPointer,                    \
      (CUmemPoolPtrExportData *share_data_out, CUdeviceptr ptr), (share_data_out, ptr))            \
    X(false, 11020, CUDA_HERE, mem_pool_import_pointer, cuMemPoolImportPointer,                    \
      (CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *share_data),               \
      (ptr_out, pool, share_data))

#define CUDA_CALLS_STREAMS(X, X0)                                                                  \
    X(true, 2000, CUDA_HERE, stream_create, cuStreamCreate,                                        \
      (CUstream *stream, unsigned flags), (stream, flags))                                         \
    X(false, 5050, CUDA_HERE, stream_create_with_priority, cuStreamCreateWithPriority,             \
      (CUstream *stream, unsigned flags, int priority), (stream, flags, priority))                 \
    X(true, 4000, CUDA_HERE, stream_destroy, cuStreamDestroy_v2, (CUstream stream), (stream))      \
    X(true, 2000, CUDA_HERE, stream_synchronize, cuStreamSynchronize,                              \
      (CUstream stream), (stream))                                                                 \
    X(true, 2000, CUDA_HERE, stream_query, cuStreamQuery, (CUstream stream), (stream))             \
    X(true, 3020, CUDA_HERE, stream_wait_event, cuStreamWaitEvent,                                 \
      (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))                    \
    X(false, 5000, CUDA_HERE, stream_add_callback, cuStreamAddCallback,                            \
      (CUstream stream, CUstreamCallback callback, void *user_data, unsigned flags),               \
      (stream, callback, user_data, flags))                                                        \
    X(false, 10000, CUDA_HERE, launch_host_func, cuLaunchHostFunc,                                 \
      (CUstream stream, CUhostFn fn, void *user_data), (stream, fn, user_data))                    \
    X(false, 9020, CUDA_HERE, stream_get_ctx, cuStreamGetCtx,                                      \
      (CUstream stream, CUcontext *pctx), (stream, pctx))                                          \
    X(false, 5050, CUDA_HERE, stream_get_priority, cuStreamGetPriority,                            \
      (CUstream stream, int *priority), (stream, priority))                                        \
    X(false, 5050, CUDA_HERE, stream_get_flags, cuStreamGetFlags,                                  \
      (CUstream stream, unsigned *flags), (stream, flags))                                         \
    X(true, 2000, CUDA_HERE, event_create, cuEventCreate,                                          \
      (CUevent *event, unsigned flags), (event, flags))                                            \
    X(true, 4000, CUDA_HERE, event_destroy, cuEventDestroy_v2, (CUevent event), (event))           \
    X(true, 2000, CUDA_HERE, event_record, cuEventRecord,                                          \
      (CUevent event, CUstream stream), (event, stream))                                           \
    X(true, 2000, CUDA_HERE, event_synchronize, cuEventSynchronize, (CUevent event), (event))      \
    X(true, 2000, CUDA_HERE, event_query, cuEventQuery, (CUevent event), (event))                  \
    X(true, 2000, CUDA_HERE, event_elapsed_time, cuEventElapsedTime,                               \
      (float *milliseconds, CUevent start, CUevent end), (milliseconds, start, end))

#define CUDA_CALLS_MODULES(X, X0)                                                                  \
    X(false, 2000, CUDA_HERE, module_load, cuModuleLoad,                                           \
      (CUmodule *module, const char *fname), (module, fname))                                      \
    X(true, 2000, CUDA_HERE, module_load_data, cuModuleLoadData,                                   \
      (CUmodule *module, const void *image), (module, image))                                      \
    X(true, 2010, CUDA_HERE, module_load_data_ex, cuModuleLoadDataEx,                              \
      (CUmodule *module, const void *image, unsigned num_options, CUjit_option *options,           \
       void **option_values),                                                                      \
      (module, image, num_options, options, option_values))                                        \
    X(true, 2000, CUDA_HERE, module_unload, cuModuleUnload, (CUmodule hmod), (hmod))               \
    X(true, 2000, CUDA_HERE, module_get_function, cuModuleGetFunction,                             \
      (CUfunction *hfunc, CUmodule hmod, const char *name), (hfunc, hmod, name))                   \
    X(false, 3020, CUDA_HERE, module_get_global, cuModuleGetGlobal_v2,                             \
      (CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name),                         \
      (dptr, bytes, hmod, name))                                                                   \
    X(false, 2020, CUDA_HERE, func_get_attribute, cuFuncGetAttribute,                              \
      (int *pi, CUfunction_attribute attrib, CUfunction hfunc), (pi, attrib, hfunc))               \
    X(false, 9000, CUDA_HERE, func_set_attribute, cuFuncSetAttribute,                              \
      (CUfunction hfunc, CUfunction_attribute attrib, int value), (hfunc, attrib, value))          \
    X(false, 3000, CUDA_HERE, func_set_cache_config, cuFuncSetCacheConfig,                         \
      (CUfunction hfunc, CUfunc_cache config), (hfunc, config))                                    \
    X(false, 6050, CUDA_HERE, occupancy_max_active_blocks,                                         \
      cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                 \
      (int *num_blocks, CUfunction func, int block_size, size_t dynamic_s_mem_size),               \
      (num_blocks, func, block_size, dynamic_s_mem_size))                                          \
    X(false, 6050, CUDA_HERE, occupancy_max_potential_block_size,                                  \
      cuOccupancyMaxPotentialBlockSize,                                                            \
      (int *min_grid_size, int *block_size, CUfunction func,                                       \
       CUoccupancyB2DSize block_size_to_dynamic_s_mem_size, size_t dynamic_s_mem_size,             \
       int block_size_limit),                                                                      \
      (min_grid_size, block_size, func, block_size_to_dynamic_s_mem_size, dynamic_s_mem_size,      \
       block_size_limit))                                                                          \
    X(true, 4000, CUDA_HERE, launch_kernel, cuLaunchKernel,                                        \
      (CUfunction f, unsigned grid_dim_x, unsigned grid_dim_y, unsigned grid_dim_z,                \
       unsigned block_dim_x, unsigned block_dim_y, unsigned block_dim_z,                           \
       unsigned shared_mem_bytes, CUstream stream, void **kernel_params, void **extra),            \
      (f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,               \
       shared_mem_bytes, stream, kernel_params, extra))                                            \
    X(false, 11060, CUDA_HERE, launch_kernel_ex, cuLaunchKernelEx,                                 \
      (const CUlaunchConfig *config, CUfunction f, void **kernel_params, void **extra),            \
      (config, f, kernel_params, extra))                                                           \
    X(false, 9000, CUDA_HERE, launch_cooperative_kernel, cuLaunchCooperativeKernel,                \
      (CUfunction f, unsigned grid_dim_x, unsigned grid_dim_y, unsigned grid_dim_z,                \
       unsigned block_dim_x, unsigned block_dim_y, unsigned block_dim_z,                           \
       unsigned shared_mem_bytes, CUstream stream, void **kernel_params),                          \
      (f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z,               \
       shared_mem_bytes, stream, kernel_params))

#define CUDA_CALLS(X, X0)                                                                          \
    CUDA_CALLS_INIT(X, X0)                                                                         \
    CUDA_CALLS_DEVICES(X, X0)                                                                      \
    CUDA_CALLS_CONTEXTS(X, X0)                                                                     \
    CUDA_CALLS_MEMORY(X, X0)                                                                       \
    CUDA_CALLS_COPIES(X, X0)                                                                       \
    CUDA_CALLS_VMM(X, X0)                                                                          \
    CUDA_CALLS_POOLS(X, X0)                                                                        \
    CUDA_CALLS_STREAMS(X, X0)                                                                      \
    CUDA_CALLS_MODULES(X, X0)
/* clang-format on */
