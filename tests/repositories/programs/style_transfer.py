"""Neural style transfer: Gram matrices, total variation, an image as the variable."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(19)
content_image = rng.rand(1, 12, 12, 3).astype(np.float32)
style_image = rng.rand(1, 12, 12, 3).astype(np.float32)

inputs = tf.keras.Input((None, None, 3))
x = tf.keras.layers.Conv2D(4, 3, activation="relu", padding="same", name="block1")(inputs)
x = tf.keras.layers.AveragePooling2D(2)(x)
x = tf.keras.layers.Conv2D(6, 3, activation="relu", padding="same", name="block2")(x)
vgg = tf.keras.Model(inputs, x)
vgg.set_weights([rng.normal(0, 0.3, w.shape) for w in vgg.get_weights()])
vgg.trainable = False


def vgg_layers(layer_names):
    outputs = [vgg.get_layer(name).output for name in layer_names]
    return tf.keras.Model([vgg.input], outputs)


def gram_matrix(input_tensor):
    result = tf.linalg.einsum("bijc,bijd->bcd", input_tensor, input_tensor)
    input_shape = tf.shape(input_tensor)
    num_locations = tf.cast(input_shape[1] * input_shape[2], tf.float32)
    return result / (num_locations)


class StyleContentModel(tf.keras.models.Model):
    def __init__(self, style_layers, content_layers):
        super(StyleContentModel, self).__init__()
        self.vgg = vgg_layers(style_layers + content_layers)
        self.style_layers = style_layers
        self.content_layers = content_layers
        self.num_style_layers = len(style_layers)
        self.vgg.trainable = False

    def call(self, inputs):
        "Expects float input in [0,1]"
        inputs = inputs * 255.0
        preprocessed_input = inputs / 127.5 - 1.0
        outputs = self.vgg(preprocessed_input)
        style_outputs, content_outputs = (
            outputs[: self.num_style_layers],
            outputs[self.num_style_layers :],
        )
        style_outputs = [gram_matrix(style_output) for style_output in style_outputs]
        content_dict = {
            name: value for name, value in zip(self.content_layers, content_outputs)
        }
        style_dict = {name: value for name, value in zip(self.style_layers, style_outputs)}
        return {"content": content_dict, "style": style_dict}


extractor = StyleContentModel(["block1", "block2"], ["block2"])
style_targets = extractor(tf.constant(style_image))["style"]
content_targets = extractor(tf.constant(content_image))["content"]
for name, output in sorted(style_targets.items()):
    print("  ", name, output.numpy().shape, output.numpy().mean())

image = tf.Variable(content_image)


def clip_0_1(image):
    return tf.clip_by_value(image, clip_value_min=0.0, clip_value_max=1.0)


opt = tf.keras.optimizers.Adam(learning_rate=0.02, beta_1=0.99, epsilon=1e-1)


def style_content_loss(outputs):
    style_outputs = outputs["style"]
    content_outputs = outputs["content"]
    style_loss = tf.add_n(
        [
            tf.reduce_mean((style_outputs[name] - style_targets[name]) ** 2)
            for name in style_outputs.keys()
        ]
    )
    style_loss *= 1.0 / len(style_outputs)
    content_loss = tf.add_n(
        [
            tf.reduce_mean((content_outputs[name] - content_targets[name]) ** 2)
            for name in content_outputs.keys()
        ]
    )
    return style_loss + 0.1 * content_loss


def high_pass_x_y(image):
    x_var = image[:, :, 1:, :] - image[:, :, :-1, :]
    y_var = image[:, 1:, :, :] - image[:, :-1, :, :]
    return x_var, y_var


def total_variation_loss(image):
    x_deltas, y_deltas = high_pass_x_y(image)
    return tf.reduce_sum(tf.abs(x_deltas)) + tf.reduce_sum(tf.abs(y_deltas))


@tf.function()
def train_step(image):
    with tf.GradientTape() as tape:
        outputs = extractor(image)
        loss = style_content_loss(outputs)
        loss += 1e-3 * total_variation_loss(image)
    grad = tape.gradient(loss, image)
    opt.apply_gradients([(grad, image)])
    image.assign(clip_0_1(image))
    return loss


for n in range(5):
    print("step", n, train_step(image).numpy())
print("image", float(tf.reduce_mean(image)), float(tf.math.reduce_std(image)))
