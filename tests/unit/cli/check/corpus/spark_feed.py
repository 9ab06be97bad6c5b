"""A function for executors of a cluster: it gets arguments and a context."""
def main_fun(args, ctx):
    import numpy as np
    import tensorflow as tf
    from tensorflowonspark import TFNode

    feed = TFNode.DataFeed(ctx.mgr, False)
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()

    def rows():
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if len(batch) > 0:
                image = np.array(batch[0][0]).astype(np.float32) / 255.0
                yield image.reshape(28, 28, 1), np.array(batch[0][1])

    data = tf.data.Dataset.from_generator(
        rows, (tf.float32, tf.float32), (tf.TensorShape([28, 28, 1]), tf.TensorShape([])))
    data = data.batch(args.batch_size)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = data.with_options(options)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.SGD(learning_rate=0.001), metrics=["accuracy"])
    callbacks = [tf.keras.callbacks.ModelCheckpoint(  #: differs .weights.h5
        filepath=args.model_dir + "/weights-{epoch:04d}", save_weights_only=True)]
    tf.io.gfile.makedirs(args.model_dir)
    model.fit(data, epochs=args.epochs, steps_per_epoch=100, callbacks=callbacks)
    feed.terminate()
    if ctx.job_name == "chief":
        model.save(args.export_dir + "/model.keras")
        tf.compat.v1.gfile.MakeDirs(args.export_dir)  #: missing
