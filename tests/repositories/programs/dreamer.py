"""A world model in the style of Dreamer: a recurrent state, imagination by scan, three optimizers."""

import numpy as np
import tensorflow as tf

rng = np.random.RandomState(12)
BATCH, LENGTH, OBS, ACTION, DETER = 3, 5, 4, 2, 6


class Module(tf.Module):
    def get(self, name, ctor, *args, **kwargs):
        if not hasattr(self, "_modules"):
            self._modules = {}
        if name not in self._modules:
            self._modules[name] = ctor(*args, **kwargs)
        return self._modules[name]


class Linear(tf.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.kernel = tf.Variable(rng.normal(0, 0.4, (inputs, units)).astype(np.float32))
        self.bias = tf.Variable(tf.zeros([units]))

    def __call__(self, x):
        return x @ self.kernel + self.bias


class RSSM(Module):
    def __init__(self):
        super().__init__()
        self._obs_in = Linear(DETER + OBS, DETER)
        self._img_in = Linear(DETER + ACTION, DETER)
        self._gates = Linear(2 * DETER, DETER)

    def initial(self, batch_size):
        return dict(deter=tf.zeros([batch_size, DETER]), stoch=tf.zeros([batch_size, DETER]))

    def img_step(self, prev, action):
        x = tf.nn.elu(self.get("img", lambda: self._img_in)(tf.concat([prev["stoch"], action], -1)))
        gate = tf.sigmoid(self._gates(tf.concat([x, prev["deter"]], -1)))
        deter = gate * tf.tanh(x) + (1 - gate) * prev["deter"]
        return {"deter": deter, "stoch": 0.5 * deter}

    def obs_step(self, prev, action, embed):
        prior = self.img_step(prev, action)
        stoch = tf.tanh(self._obs_in(tf.concat([prior["deter"], embed], -1)))
        return {"deter": prior["deter"], "stoch": stoch}, prior

    def observe(self, embed, action):
        swap = lambda x: tf.transpose(x, [1, 0] + list(range(2, len(x.shape))))
        embed, action = swap(embed), swap(action)
        start = self.initial(embed.shape[1])
        post, prior = static_scan(
            lambda prev, inputs: self.obs_step(prev[0], *inputs), (action, embed), (start, start)
        )
        return (
            {k: swap(v) for k, v in post.items()},
            {k: swap(v) for k, v in prior.items()},
        )


def static_scan(fn, inputs, start, reverse=False):
    last = start
    outputs = [[] for _ in tf.nest.flatten(start)]
    indices = range(tf.nest.flatten(inputs)[0].shape[0])
    if reverse:
        indices = reversed(indices)
    for index in indices:
        inp = tf.nest.map_structure(lambda x: x[index], inputs)
        last = fn(last, inp)
        [o.append(l) for o, l in zip(outputs, tf.nest.flatten(last))]
    if reverse:
        outputs = [list(reversed(x)) for x in outputs]
    outputs = [tf.stack(x, 0) for x in outputs]
    return tf.nest.pack_sequence_as(start, outputs)


def lambda_return(reward, value, pcont, bootstrap, lambda_):
    next_values = tf.concat([value[1:], bootstrap[None]], 0)
    inputs = reward + pcont * next_values * (1 - lambda_)
    return static_scan(
        lambda agg, cur: cur[0] + cur[1] * lambda_ * agg, (inputs, pcont), bootstrap, reverse=True
    )


class Optimizer(tf.Module):
    def __init__(self, name, lr, clip=100.0, wd=0.01):
        super().__init__(name=name)
        self._name, self._clip, self._wd = name, clip, wd
        self._opt = tf.keras.optimizers.Adam(lr)

    def __call__(self, tape, loss, modules):
        assert loss.dtype is tf.float32 or loss.dtype == tf.float32, self._name
        modules = modules if hasattr(modules, "__len__") else (modules,)
        varibs = tf.nest.flatten([module.trainable_variables for module in modules])
        grads = tape.gradient(loss, varibs)
        norm = tf.linalg.global_norm(grads)
        grads, _ = tf.clip_by_global_norm(grads, self._clip, norm)
        for var in varibs:
            if var.shape.rank > 1:
                var.assign((1 - self._wd * 0.01) * var)
        self._opt.apply_gradients(zip(grads, varibs))
        return {f"{self._name}_loss": loss, f"{self._name}_grad_norm": norm}


class Agent(tf.Module):
    def __init__(self):
        super().__init__()
        self.rssm = RSSM()
        self.decoder = Linear(2 * DETER, OBS)
        self.reward = Linear(2 * DETER, 1)
        self.actor = Linear(2 * DETER, ACTION)
        self.critic = Linear(2 * DETER, 1)
        self.model_opt = Optimizer("model", 3e-3)
        self.actor_opt = Optimizer("actor", 1e-3)
        self.critic_opt = Optimizer("critic", 1e-3)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def feat(self, state):
        return tf.concat([state["stoch"], state["deter"]], -1)

    @tf.function
    def train(self, data):
        metrics = {}
        with tf.GradientTape() as model_tape:
            post, prior = self.rssm.observe(data["image"], data["action"])
            feat = self.feat(post)
            recon = tf.reduce_mean((self.decoder(feat) - data["image"]) ** 2)
            reward = tf.reduce_mean((self.reward(feat)[..., 0] - data["reward"]) ** 2)
            div = tf.reduce_mean((post["stoch"] - prior["stoch"]) ** 2)
            model_loss = recon + reward + tf.maximum(div, 0.1)
        modules = [self.rssm, self.decoder, self.reward]
        metrics.update(self.model_opt(model_tape, model_loss, modules))
        with tf.GradientTape() as actor_tape:
            start = {k: tf.reshape(v, [-1, v.shape[-1]]) for k, v in post.items()}
            feats = []
            state = start
            for _ in range(4):
                action = tf.tanh(self.actor(tf.stop_gradient(self.feat(state))))
                state = self.rssm.img_step(state, action)
                feats.append(self.feat(state))
            img_feat = tf.stack(feats, 0)
            img_reward = self.reward(img_feat)[..., 0]
            value = self.critic(img_feat)[..., 0]
            pcont = 0.95 * tf.ones_like(img_reward)
            returns = lambda_return(img_reward[:-1], value[:-1], pcont[:-1], value[-1], 0.95)
            actor_loss = -tf.reduce_mean(returns)
        metrics.update(self.actor_opt(actor_tape, actor_loss, self.actor))
        with tf.GradientTape() as critic_tape:
            value = self.critic(tf.stop_gradient(img_feat[:-1]))[..., 0]
            target = tf.stop_gradient(returns)
            critic_loss = tf.reduce_mean(0.5 * (value - target) ** 2)
        metrics.update(self.critic_opt(critic_tape, critic_loss, self.critic))
        self.step.assign_add(1)
        return metrics


def generator():
    for _ in range(6):
        yield {
            "image": rng.normal(size=(LENGTH, OBS)).astype(np.float32),
            "action": rng.uniform(-1, 1, (LENGTH, ACTION)).astype(np.float32),
            "reward": rng.normal(size=LENGTH).astype(np.float32),
        }


types = {"image": tf.float32, "action": tf.float32, "reward": tf.float32}
shapes = {"image": (LENGTH, OBS), "action": (LENGTH, ACTION), "reward": (LENGTH,)}
dataset = tf.data.Dataset.from_generator(generator, types, shapes).batch(BATCH, drop_remainder=True)
agent = Agent()
for batch in dataset:
    for _ in range(2):
        metrics = agent.train(batch)
    print(int(agent.step), {k: float(v) for k, v in sorted(metrics.items())})
