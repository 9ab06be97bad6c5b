"""Replacements for TensorFlow's functions of arrays that are not here.

Each was tried: it exists, and gives the numbers that TensorFlow's function gives.
"""

from __future__ import annotations

_HOST = "Use scipy.special.{} outside compiled functions: it takes NumPy arrays."
_BESSEL = "Use jax.scipy.special.{}(x)."
_KERAS_IMAGE = "Use unisono.keras.ops.image.{}."
_PILLOW = "Use PIL.Image.open(io.BytesIO(data)) of Pillow in Dataset.map."
_CROP = "Use unisono.io.decode_jpeg(data)[y : y + height, x : x + width]."
_JPEG_SHAPE = "Use unisono.io.decode_jpeg(data).shape."
_IS_JPEG = r'Use data[:3] == b"\xff\xd8\xff".'
_BASE64 = (
    "Use Python's base64.urlsafe_b64{} in Dataset.map; TensorFlow leaves out the "
    "padding `=`."
)
_PROTO = "Use the package protobuf and your compiled classes in Dataset.map."
_SPARSE_BYTES = (
    "Serialize its indices, values and shape with unisono.io.serialize_tensor."
)
_CANDIDATES = (
    "Draw classes with unisono.random.uniform or jax.random.categorical, or use the "
    "full softmax."
)
_POOL = "Use unisono.nn.max_pool or unisono.nn.avg_pool."
_BY_HAND = "Use unisono.GradientTape: it differentiates the convolution."
_WRAPPER = "Write the {} in the call method of the cell."
_OPERATOR = (
    "Use the matrix, or a function that multiplies it by a vector, such as lambda x: d "
    "* x; jax.scipy.sparse.linalg.cg takes either."
)
_OLD_NUMBERS = "Store numpy.{} numbers and their scale; keras and qwix quantize models."

INSTEAD = {
    "DeviceSpec": 'Use a name such as "/GPU:0".',
    "IndexedSlicesSpec": "Use a unisono.TensorSpec of the dense gradient.",
    "NoneTensorSpec": "Use None.",
    "OptionalSpec": "Use the unisono.TensorSpec of the value.",
    "TensorArraySpec": "Use a unisono.TensorSpec of the stacked array.",
    "approx_top_k": "Use jax.lax.approx_max_k(x, k).",
    "bitcast": "Use jax.lax.bitcast_convert_type(x, dtype).",
    "broadcast_static_shape": "Use jax.numpy.broadcast_shapes(a, b).",
    "check_pinned": "Leave it out: JAX places arrays.",
    "conv": "Use unisono.nn.convolution.",
    "conv2d_backprop_filter_v2": _BY_HAND,
    "conv2d_backprop_input_v2": _BY_HAND,
    "eig": "Use jax.numpy.linalg.eig(x).",
    "eigvals": "Use jax.numpy.linalg.eigvals(x).",
    "extract_volume_patches": (
        "Use jax.lax.conv_general_dilated_patches, which takes 3D images."
    ),
    "fftnd": "Use jax.numpy.fft.fftn(x, fft_length, axes).",
    "fingerprint": "Use hashlib.blake2b(data, digest_size=8) in Dataset.map.",
    "ifftnd": "Use jax.numpy.fft.ifftn(x, fft_length, axes).",
    "irfftnd": "Use jax.numpy.fft.irfftn(x, fft_length, axes).",
    "matrix_square_root": (
        "Use jax.scipy.linalg.sqrtm(x), and its .real if the root is real."
    ),
    "nondifferentiable_batch_function": (
        "Collect the requests in Python, and call the function on the batch."
    ),
    "qint16": _OLD_NUMBERS.format("int16"),
    "qint32": _OLD_NUMBERS.format("int32"),
    "qint8": _OLD_NUMBERS.format("int8"),
    "quint16": _OLD_NUMBERS.format("uint16"),
    "quint8": _OLD_NUMBERS.format("uint8"),
    "random_index_shuffle": "Use jax.random.permutation(jax.random.key(seed), n)[i].",
    "required_space_to_batch_paddings": "Compute the padding as -size % block.",
    "rfftnd": "Use jax.numpy.fft.rfftn(x, fft_length, axes).",
    "space_to_batch": (
        "Pad with unisono.pad, then use unisono.reshape and unisono.transpose."
    ),
    "space_to_batch_nd": (
        "Pad with unisono.pad, then use unisono.reshape and unisono.transpose."
    ),
    # Images and files.
    "image.adjust_gamma": "Use gain * image**gamma.",
    "image.adjust_jpeg_quality": (
        "Use unisono.io.decode_jpeg(unisono.io.encode_jpeg(image, quality=quality))."
    ),
    "image.combined_non_max_suppression": (
        "Call unisono.image.non_max_suppression for each image and class, outside "
        "compiled functions."
    ),
    "image.crop_and_resize": (
        "Use jax.image.scale_and_translate, or slice the image and use "
        "unisono.image.resize."
    ),
    "image.decode_and_crop_jpeg": _CROP,
    "image.decode_jxl": _PILLOW,
    "image.decode_webp": _PILLOW,
    "image.draw_bounding_boxes": "Use PIL.ImageDraw of Pillow on the host.",
    "image.extract_glimpse": "Use unisono.image.crop_to_bounding_box.",
    "image.extract_jpeg_shape": _JPEG_SHAPE,
    "image.extract_patches": _KERAS_IMAGE.format(
        "extract_patches(images, size, strides)"
    ),
    "image.hsv_to_rgb": _KERAS_IMAGE.format("hsv_to_rgb(images)"),
    "image.image_gradients": (
        "Use jax.numpy.diff(images, axis=1) and axis=2; TensorFlow adds a row and a "
        "column of zeros at the end."
    ),
    "image.is_jpeg": _IS_JPEG,
    "image.non_max_suppression_padded": (
        "Use unisono.image.non_max_suppression, and pad the result."
    ),
    "image.non_max_suppression_with_scores": (
        "Use unisono.image.non_max_suppression, and unisono.gather for the scores; "
        "there is no soft suppression."
    ),
    "image.psnr": "Compute 10 * log10(max_val**2 / mean((a - b) ** 2)) with jax.numpy.",
    "image.random_jpeg_quality": (
        "Use unisono.io.encode_jpeg with a random quality, and unisono.io.decode_jpeg."
    ),
    "image.stateless_random_jpeg_quality": (
        "Use unisono.io.encode_jpeg with a random quality, and unisono.io.decode_jpeg."
    ),
    "image.rgb_to_hsv": _KERAS_IMAGE.format("rgb_to_hsv(images)"),
    "image.sample_distorted_bounding_box": (
        "Use unisono.image.random_crop, or unisono.keras.layers.RandomCrop."
    ),
    "image.ssim": (
        "Compute the means, variances and covariance of windows by convolutions with "
        "an 11 x 11 Gaussian of standard deviation 1.5, or use skimage.metrics on the "
        "host."
    ),
    "image.stateless_sample_distorted_bounding_box": (
        "Use unisono.image.stateless_random_crop."
    ),
    "image.total_variation": (
        "Add jax.numpy.abs(jax.numpy.diff(images, axis=a)).sum((1, 2, 3)) for a = 1 "
        "and a = 2."
    ),
    "image.transpose": "Use jax.numpy.swapaxes(images, -3, -2).",
    "io.decode_and_crop_jpeg": _CROP,
    "io.decode_base64": _BASE64.format("decode"),
    "io.decode_compressed": "Use Python's zlib or gzip.decompress in Dataset.map.",
    "io.decode_json_example": (
        "Use google.protobuf.json_format, or json, in Dataset.map."
    ),
    "io.decode_jxl": _PILLOW,
    "io.decode_proto": _PROTO,
    "io.decode_webp": _PILLOW,
    "io.deserialize_many_sparse": _SPARSE_BYTES,
    "io.encode_base64": _BASE64.format("encode"),
    "io.encode_proto": _PROTO,
    "io.extract_jpeg_shape": _JPEG_SHAPE,
    "io.is_jpeg": _IS_JPEG,
    "io.match_filenames_once": "Use glob.glob, or unisono.io.gfile.glob.",
    "io.serialize_many_sparse": _SPARSE_BYTES,
    "io.serialize_sparse": _SPARSE_BYTES,
    "io.write_graph": "Export the function with unisono.saved_model.save.",
    "io.gfile.get_registered_schemes": "Leave it out.",
    # Mathematics.
    "linalg.LinearOperator": _OPERATOR,
    "linalg.banded_triangular_solve": "Use jax.scipy.linalg.solve_triangular.",
    "linalg.eigh_tridiagonal": (
        "Use jax.scipy.linalg.eigh_tridiagonal(alpha, beta, eigvals_only=True)."
    ),
    "linalg.experimental": "Use jax.scipy.sparse.linalg.cg(A, b).",
    "linalg.logm": (
        "For a symmetric x use w, v = jax.numpy.linalg.eigh(x) and "
        "(v * jax.numpy.log(w)) @ v.T; else scipy.linalg.logm on the host."
    ),
    "linalg.lu": "Use lu, _, p = jax.lax.linalg.lu(x).",
    "linalg.lu_matrix_inverse": "Use jax.numpy.linalg.inv(x) of the original matrix.",
    "linalg.lu_reconstruct": "Keep the original matrix.",
    "linalg.lu_solve": "Use jax.numpy.linalg.solve(x, rhs) with the original matrix.",
    "linalg.sqrtm": "Use jax.scipy.linalg.sqrtm(x), and its .real if the root is real.",
    "linalg.tridiagonal_matmul": (
        "Multiply the three diagonals with rhs and its shifts (jax.numpy.roll)."
    ),
    "linalg.tridiagonal_solve": (
        "Use jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, rhs), where "
        "lower begins with 0 and upper ends with it."
    ),
    "math.approx_max_k": "Use jax.lax.approx_max_k(x, k).",
    "math.approx_min_k": "Use jax.lax.approx_min_k(x, k).",
    "math.bessel_i0": _BESSEL.format("i0"),
    "math.bessel_i0e": _BESSEL.format("i0e"),
    "math.bessel_i1": _BESSEL.format("i1"),
    "math.bessel_i1e": _BESSEL.format("i1e"),
    "math.erfcinv": "Use jax.scipy.special.erfinv(1 - x).",
    "math.igamma": "Use jax.scipy.special.gammainc(a, x).",
    "math.igammac": "Use jax.scipy.special.gammaincc(a, x).",
    "math.lbeta": (
        "Use g(x).sum(-1) - g(x.sum(-1)) with g = jax.scipy.special.gammaln."
    ),
    "math.sobol_sample": (
        "Use scipy.stats.qmc.Sobol(dim, scramble=False).random(n + 1)[1:]."
    ),
    "math.special.bessel_i0": _BESSEL.format("i0"),
    "math.special.bessel_i0e": _BESSEL.format("i0e"),
    "math.special.bessel_i1": _BESSEL.format("i1"),
    "math.special.bessel_i1e": _BESSEL.format("i1e"),
    "math.special.bessel_j0": _HOST.format("j0"),
    "math.special.bessel_j1": _HOST.format("j1"),
    "math.special.bessel_k0": _HOST.format("k0"),
    "math.special.bessel_k0e": _HOST.format("k0e"),
    "math.special.bessel_k1": _HOST.format("k1"),
    "math.special.bessel_k1e": _HOST.format("k1e"),
    "math.special.bessel_y0": _HOST.format("y0"),
    "math.special.bessel_y1": _HOST.format("y1"),
    "math.special.dawsn": _HOST.format("dawsn"),
    "math.special.expint": "Use jax.scipy.special.expi(x).",
    "math.special.fresnel_cos": _HOST.format("fresnel(x)[1]"),
    "math.special.fresnel_sin": _HOST.format("fresnel(x)[0]"),
    "metrics.KLD": "Use unisono.keras.metrics.kl_divergence.",
    "metrics.MAE": "Use unisono.keras.metrics.mean_absolute_error.",
    "metrics.MAPE": "Use unisono.keras.metrics.mean_absolute_percentage_error.",
    "metrics.MSE": "Use unisono.keras.metrics.mean_squared_error.",
    "metrics.MSLE": "Use unisono.keras.metrics.mean_squared_logarithmic_error.",
    "metrics.kld": "Use unisono.keras.metrics.kl_divergence.",
    "metrics.kullback_leibler_divergence": "Use unisono.keras.metrics.kl_divergence.",
    "metrics.logcosh": "Use unisono.keras.losses.log_cosh.",
    "metrics.mae": "Use unisono.keras.metrics.mean_absolute_error.",
    "metrics.mape": "Use unisono.keras.metrics.mean_absolute_percentage_error.",
    "metrics.mse": "Use unisono.keras.metrics.mean_squared_error.",
    "metrics.msle": "Use unisono.keras.metrics.mean_squared_logarithmic_error.",
    # Neural networks.
    "nn.RNNCellDeviceWrapper": "Leave it out.",
    "nn.RNNCellDropoutWrapper": _WRAPPER.format("dropout"),
    "nn.RNNCellResidualWrapper": _WRAPPER.format("sum with the input"),
    "nn.all_candidate_sampler": _CANDIDATES,
    "nn.approx_max_k": "Use jax.lax.approx_max_k(x, k).",
    "nn.approx_min_k": "Use jax.lax.approx_min_k(x, k).",
    "nn.atrous_conv2d_transpose": "Use unisono.nn.conv2d_transpose with dilations=.",
    "nn.batch_norm_with_global_normalization": "Use unisono.nn.batch_normalization.",
    "nn.collapse_repeated": "Use itertools.groupby on the host.",
    "nn.compute_accidental_hits": _CANDIDATES,
    "nn.conv_transpose": (
        "Use unisono.nn.conv1d_transpose, conv2d_transpose or conv3d_transpose."
    ),
    "nn.ctc_unique_labels": "Use numpy.unique(labels, return_inverse=True).",
    "nn.depthwise_conv2d_backprop_filter": _BY_HAND,
    "nn.depthwise_conv2d_backprop_input": _BY_HAND,
    "nn.dilation2d": (
        "Use jax.lax.reduce_window with jax.lax.max; if the filter is not zero, add it "
        "to jax.lax.conv_general_dilated_patches and take the maximum."
    ),
    "nn.erosion2d": "Use jax.lax.reduce_window with jax.lax.min.",
    "nn.experimental": "Use unisono.nn.dropout, or unisono.random.stateless_uniform.",
    "nn.fixed_unigram_candidate_sampler": _CANDIDATES,
    "nn.fractional_avg_pool": _POOL,
    "nn.fractional_max_pool": _POOL,
    "nn.isotonic_regression": (
        "Use scipy.optimize.isotonic_regression(x, increasing=False).x on the host."
    ),
    "nn.learned_unigram_candidate_sampler": _CANDIDATES,
    "nn.max_pool_with_argmax": (
        "Use jax.lax.conv_general_dilated_patches, then max and argmax."
    ),
    "nn.nce_loss": _CANDIDATES,
    "nn.normalize_moments": (
        "Compute the mean as sums / n, and the variance as squares / n - mean**2."
    ),
    "nn.pool": _POOL,
    "nn.space_to_batch": "Use dilations= of unisono.nn.convolution.",
    "nn.sufficient_statistics": "Use x.sum(axes) and (x * x).sum(axes).",
    "nn.weighted_moments": (
        "Compute mean = jax.numpy.average(x, axes, weights), and the variance as the "
        "same average of (x - mean) ** 2."
    ),
    "nn.with_space_to_batch": "Use dilations= of unisono.nn.convolution.",
    "profiler.experimental.client": (
        "Use unisono.profiler.experimental.start in the program that is profiled."
    ),
    "profiler.experimental.server": "Use jax.profiler.start_server(port).",
    "random.all_candidate_sampler": _CANDIDATES,
    "random.fixed_unigram_candidate_sampler": _CANDIDATES,
    "random.learned_unigram_candidate_sampler": _CANDIDATES,
    "random.log_uniform_candidate_sampler": _CANDIDATES,
    "random.uniform_candidate_sampler": _CANDIDATES,
    "random.stateless_binomial": "Use jax.random.binomial(jax.random.key(seed), n, p).",
    "random.stateless_parameterized_truncated_normal": (
        "Use jax.random.truncated_normal(key, lower, upper) * stddev + mean."
    ),
    "random.experimental.index_shuffle": (
        "Use jax.random.permutation(jax.random.key(seed), n)[i]."
    ),
    # Signals.
    "signal.dct": "Use jax.scipy.fft.dct(x).",
    "signal.fft2d": "Use jax.numpy.fft.fft2(x).",
    "signal.fft3d": "Use jax.numpy.fft.fftn(x, axes=(-3, -2, -1)).",
    "signal.fftnd": "Use jax.numpy.fft.fftn(x, fft_length, axes).",
    "signal.frame": "Use unisono.keras.ops.extract_sequences(x, length, step).",
    "signal.hamming_window": (
        "Use jax.numpy.hamming(n + 1)[:-1] for an even n, and jax.numpy.hamming(n) for "
        "an odd one."
    ),
    "signal.hann_window": (
        "Use jax.numpy.hanning(n + 1)[:-1] for an even n, and jax.numpy.hanning(n) for "
        "an odd one."
    ),
    "signal.idct": (
        "Use jax.scipy.fft.idct(x) * 2 * x.shape[-1], "
        'or jax.scipy.fft.idct(x, norm="ortho").'
    ),
    "signal.ifft2d": "Use jax.numpy.fft.ifft2(x).",
    "signal.ifft3d": "Use jax.numpy.fft.ifftn(x, axes=(-3, -2, -1)).",
    "signal.ifftnd": "Use jax.numpy.fft.ifftn(x, fft_length, axes).",
    "signal.inverse_stft": (
        "Use unisono.keras.ops.istft((x.real, x.imag), length, step, fft_length, "
        "center=False), which inverts stft exactly."
    ),
    "signal.irfft2d": "Use jax.numpy.fft.irfft2(x).",
    "signal.irfft3d": "Use jax.numpy.fft.irfftn(x, axes=(-3, -2, -1)).",
    "signal.irfftnd": "Use jax.numpy.fft.irfftn(x, fft_length, axes).",
    "signal.kaiser_window": "Use jax.numpy.kaiser(n, beta); TensorFlow's beta is 12.",
    "signal.rfft2d": "Use jax.numpy.fft.rfft2(x).",
    "signal.rfft3d": "Use jax.numpy.fft.rfftn(x, axes=(-3, -2, -1)).",
    "signal.rfftnd": "Use jax.numpy.fft.rfftn(x, fft_length, axes).",
    "signal.stft": (
        "Use real, imag = unisono.keras.ops.stft(x, length, step, fft_length, "
        "center=False)."
    ),
}
