/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's codes: X(code, name, -errno, what is wrong and what to do). No include guard: it is a
 * table, for nvml.c and nvml_check.c. New codes go here; codes that are not here are -EIO.
 */
/* clang-format off */
X(1, NVML_ERROR_UNINITIALIZED, -ENOTCONN, "NVML was not initialised, or was shut down")
X(2, NVML_ERROR_INVALID_ARGUMENT, -EINVAL, "an argument is not valid")
X(3, NVML_ERROR_NOT_SUPPORTED, -EOPNOTSUPP, "not supported on this device")
X(4, NVML_ERROR_NO_PERMISSION, -EPERM, "not permitted to this user")
X(5, NVML_ERROR_ALREADY_INITIALIZED, -EALREADY, "already initialised")
X(6, NVML_ERROR_NOT_FOUND, -ENOENT, "not found")
X(7, NVML_ERROR_INSUFFICIENT_SIZE, -ENOBUFS, "the buffer is too small")
X(8, NVML_ERROR_INSUFFICIENT_POWER, -ENXIO, "the external power cables are not attached properly")
X(9, NVML_ERROR_DRIVER_NOT_LOADED, -ENODEV, "the NVIDIA driver is not loaded")
X(10, NVML_ERROR_TIMEOUT, -ETIMEDOUT, "nothing came within the time given")
X(11, NVML_ERROR_IRQ_ISSUE, -EIO, "the kernel has trouble with the GPU's interrupts: see dmesg")
X(12, NVML_ERROR_LIBRARY_NOT_FOUND, -ELIBACC, "a library that NVML needs is missing: reinstall the driver")
X(13, NVML_ERROR_FUNCTION_NOT_FOUND, -EOPNOTSUPP, "not supported by this driver")
X(14, NVML_ERROR_CORRUPTED_INFOROM, -EUCLEAN, "the GPU's infoROM is corrupted: have the card checked")
X(15, NVML_ERROR_GPU_IS_LOST, -ENXIO, "the GPU has fallen off the bus: see Xid messages in dmesg; reset it or reboot")
X(16, NVML_ERROR_RESET_REQUIRED, -ENOTRECOVERABLE, "the GPU must be reset before it can be used: nvidia-smi --gpu-reset, or reboot")
X(17, NVML_ERROR_OPERATING_SYSTEM, -EACCES, "the operating system refuses access: check the device nodes and the cgroup's device rules")
X(18, NVML_ERROR_LIB_RM_VERSION_MISMATCH, -ELIBBAD, "library and kernel module are of different versions: reboot or reload the module")
X(19, NVML_ERROR_IN_USE, -EBUSY, "the GPU is in use")
X(20, NVML_ERROR_MEMORY, -ENOMEM, "out of memory")
X(21, NVML_ERROR_NO_DATA, -ENODATA, "no data")
X(22, NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, -EOPNOTSUPP, "not supported on a vGPU while ECC is enabled")
X(23, NVML_ERROR_INSUFFICIENT_RESOURCES, -EAGAIN, "the driver is out of resources other than memory")
X(24, NVML_ERROR_FREQ_NOT_SUPPORTED, -ERANGE, "the frequency is not supported")
X(25, NVML_ERROR_ARGUMENT_VERSION_MISMATCH, -EPROTONOSUPPORT, "this driver does not know that version of the structure")
X(26, NVML_ERROR_DEPRECATED, -EOPNOTSUPP, "no longer supported by this driver")
X(27, NVML_ERROR_NOT_READY, -EAGAIN, "the system is not ready yet: try again")
X(28, NVML_ERROR_GPU_NOT_FOUND, -ENODEV, "no GPU was found")
X(29, NVML_ERROR_INVALID_STATE, -EBADFD, "not possible in this state")
X(30, NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, -EOPNOTSUPP, "that kind of reset is not supported")
X(999, NVML_ERROR_UNKNOWN, -EIO, "the driver failed and does not say why: see dmesg")
/* clang-format on */
